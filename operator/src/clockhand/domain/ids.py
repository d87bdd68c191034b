"""Stable names: any process computes the same run id for the same slot, before and after any crash.

The id is a UUIDv8 (RFC 9562, section 5.8): 48 bits of the scheduled instant in milliseconds, as in UUIDv7, and the rest
from SHA-256 of what makes the run unique. It sorts by time, tells which weekly partition holds the row, and is the key
that a handler uses for its own idempotency.
"""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime

from clockhand.domain import instants, states

SHARDS = 256
POD_SHARDS = range(SHARDS)
"""Of jobs with a pod for each attempt: operators hold them."""
POOL_SHARDS = range(SHARDS, 2 * SHARDS)
"""Of jobs whose runs workers take: API processes hold them."""
EVERY_SHARD = range(2 * SHARDS)
_TEXT = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_VERSION = 8
_LAST = (datetime.max.replace(tzinfo=UTC) - instants.EPOCH) // instants.MILLISECOND


def of_text(text: str) -> uuid.UUID | None:
    """The id that somebody wrote, if it is one."""
    return uuid.UUID(text) if _TEXT.fullmatch(text) else None


def new_jobs(now: datetime, count: int) -> Iterator[uuid.UUID]:
    """Ids of jobs that are made `now` and are no objects: UUIDv7, so that jobs made together lie together in indexes."""
    time, chance = _milliseconds(now).to_bytes(6, "big"), secrets.token_bytes(10 * count)
    for start in range(0, len(chance), 10):
        yield _stamped(time + chance[start : start + 10], version=7)


def whole_ms(instant: datetime) -> datetime:
    """`instant` cut to whole milliseconds, the resolution of every stored instant that names a run."""
    return instant - (instant - instants.EPOCH) % instants.MILLISECOND


def run_id(*, job_id: uuid.UUID, scheduled_at: datetime, kind: states.RunKind, key: str) -> uuid.UUID:
    """The id of the run of `job_id` at `scheduled_at`; `key` is empty for a slot."""
    milliseconds = _milliseconds(scheduled_at)
    digest = hashlib.sha256(b"\0".join((job_id.bytes, b"%d" % milliseconds, kind.encode(), key.encode()))).digest()
    return _stamped(milliseconds.to_bytes(6, "big") + digest[:10], version=_VERSION)


def scheduled_at_of(run: uuid.UUID) -> datetime:
    """The scheduled instant that `run` carries: it names the partition, so that a look-up by id reads one."""
    return instants.EPOCH + int.from_bytes(run.bytes[:6], "big") * instants.MILLISECOND


def names_instant(run: uuid.UUID) -> bool:
    """Whether `run`, which somebody wrote, may be the id of a run: one that carries an instant."""
    return run.version == _VERSION and int.from_bytes(run.bytes[:6], "big") <= _LAST


def run_name(*, job_name: str, scheduled_at: datetime, kind: states.RunKind, key: str) -> str:
    """The name that people see: `<job>-<yyyymmdd>t<hhmmss>z`, with a suffix where the job may have several."""
    if kind is states.RunKind.MANUAL:
        return key
    stem = f"{job_name}-{_stamp(scheduled_at)}"
    return stem if kind is states.RunKind.SLOT else f"{stem}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def shard_of(owner: str, *, job_id: uuid.UUID, width: int = 1) -> int:
    """The shard of a job: the hash of its owner, spread over `width` shards where the owner is large."""
    return (_home(owner) + job_id.int % max(1, width)) % SHARDS


def twin(shard: int, *, pooled: bool) -> int:
    """The shard of a job after an edit that may have changed what runs it."""
    return shard % SHARDS + (SHARDS if pooled else 0)


def _stamped(content: bytes, *, version: int) -> uuid.UUID:
    """A UUID of this content, but for the bits that say what it is (RFC 9562)."""
    raw = bytearray(content)
    raw[6] = version << 4 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return uuid.UUID(bytes=bytes(raw))


@functools.lru_cache(maxsize=1024)
def _home(owner: str) -> int:
    return int.from_bytes(hashlib.sha256(owner.encode()).digest()[:4], "big")


@functools.lru_cache(maxsize=1024)
def _milliseconds(instant: datetime) -> int:
    """Since 1970. Many jobs are due at one instant."""
    return (instant - instants.EPOCH) // instants.MILLISECOND


@functools.lru_cache(maxsize=1024)
def _stamp(instant: datetime) -> str:
    return f"{instant:%Y%m%dt%H%M%Sz}"
