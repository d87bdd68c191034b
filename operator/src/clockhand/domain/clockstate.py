"""What administrators are told of the database's clock, who decide whether it is right."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta

from clockhand.domain import clock as clocks


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What an administrator is told. `since` and `until` are by the database's clock as it is now."""

    database_time: datetime
    step: timedelta | None = None
    since: datetime | None = None
    until: datetime | None = None


def as_text(one: State, confirmed: timedelta | None) -> str:
    """One or a few lines for people; `confirmed` is a step that they confirmed just now."""
    lines = [f"confirmed: the clock had jumped by {clocks.signed(confirmed)}"] if confirmed is not None else []
    if one.step is None or one.since is None or one.until is None:
        return "\n".join([*lines, f"trusted: the database's clock shows {_instant(one.database_time)}"])
    left = max(one.until - one.database_time, timedelta())
    return "\n".join(
        [
            *lines,
            f"paused: the database's clock jumped by {clocks.signed(one.step)} and shows {_instant(one.database_time)}",
            f"it was noticed at {_instant(one.since)} by the clock after the jump, "
            f"{_instant(one.since - one.step)} by the one before",
            f"firing waits until {_instant(one.until)}, another {str(left).partition('.')[0]}, or until the jump is undone",
            "if the clock is right now, `clockhand clock --confirm` ends the wait",
        ]
    )


def as_json(one: State, confirmed: timedelta | None) -> str:
    """The same for programs; steps are in seconds."""
    return json.dumps(
        {
            "trusted": one.step is None,
            "databaseTime": _instant(one.database_time),
            "stepSeconds": None if one.step is None else one.step.total_seconds(),
            "noticedAt": one.since and _instant(one.since),
            "waitsUntil": one.until and _instant(one.until),
            "confirmedSeconds": None if confirmed is None else confirmed.total_seconds(),
        }
    )


def _instant(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
