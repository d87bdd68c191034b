"""What the name of a run says: a look-up by name needs no index over names, for those of slots carry job and instant.

Slots that did not run have rows of their own in lists; their names and ids are made here too.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from clockhand.domain import instants

LONGEST = 253
FORM = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*", re.ASCII)
"""As the API machinery has names."""
_SLOT = re.compile(r"(?P<job>.+)-(?P<instant>\d{8}t\d{6})z(?:-skip(?P<skip>[0-9]{1,18}))?", re.ASCII)
_ID_BITS = 62


@dataclass(frozen=True, slots=True)
class SlotName:
    """A job's slot, to the second; `skip_id` where the name is that of a row about skipped slots."""

    job_name: str
    instant: datetime
    skip_id: int | None


def parse(name: str) -> SlotName | None:
    """What a slot's name says; None for a name of any other form."""
    match = _SLOT.fullmatch(name)
    if match is None:
        return None
    try:
        instant = datetime.strptime(match["instant"], "%Y%m%dt%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    return SlotName(match["job"], instant, int(match["skip"]) if match["skip"] else None)


def mistake(name: str) -> str | None:
    """What is wrong with a name that somebody gives to a run, in a sentence that follows on it."""
    if len(name) > LONGEST or not FORM.fullmatch(name):
        return f"must be lower-case letters, digits, '-' and '.', at most {LONGEST} of them"
    if parse(name) is not None:
        return "ends like the name of a slot's run; choose a name that does not end in a date and time"
    return None


def of_skip(job_name: str, last_at: datetime, skip_id: int) -> str:
    """The name of a row about skipped slots: their job, the last of them, and what makes the name unique."""
    return f"{job_name}-{last_at.astimezone(UTC):%Y%m%dt%H%M%Sz}-skip{skip_id}"


def skip_uuid(last_at: datetime, skip_id: int) -> uuid.UUID:
    """An id for a row about skipped slots that sorts among run ids by time."""
    return uuid.UUID(int=lowest(last_at).int | (skip_id & ((1 << _ID_BITS) - 1)))


def skip_id_of(skip: uuid.UUID) -> int:
    """The number in an id that `skip_uuid` made."""
    return skip.int & ((1 << _ID_BITS) - 1)


def lowest(instant: datetime) -> uuid.UUID:
    """Below every run id of `instant` and above every earlier one."""
    milliseconds = max(0, (instant - instants.EPOCH) // instants.MILLISECOND)
    return uuid.UUID(int=milliseconds << 80 | 0x8 << 76 | 0x2 << 62)
