"""Numbers that belong to a job for ever, for spreading jobs that would otherwise all start at once.

The construction never changes: a job that moved to another minute because of an upgrade would run twice that day, or
not at all. It is the first 8 bytes, big-endian, of SHA-256 over the ASCII name of what is spread, a zero byte and the
16 bytes of the job's id. Names keep the numbers of one job independent of each other.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta

_BITS = 64
_NONE = timedelta()


def below(limit: int, *, job_id: uuid.UUID, name: str) -> int:
    """A stable number in [0, limit): one share of a whole, so that it grows and shrinks with the limit."""
    digest = hashlib.sha256(name.encode("ascii") + b"\x00" + job_id.bytes).digest()
    return int.from_bytes(digest[: _BITS // 8], "big") * limit >> _BITS


def delay(job_id: uuid.UUID, *, jitter_seconds: int) -> timedelta:
    """How much later than its slots a job starts: whole milliseconds in [0, jitter_seconds)."""
    if not jitter_seconds:
        return _NONE
    return timedelta(milliseconds=below(jitter_seconds * 1_000, job_id=job_id, name="jitter"))
