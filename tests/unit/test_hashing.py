"""Hashed values are pinned: if one of these changes, jobs move to other times when Clockhand is upgraded."""

from __future__ import annotations

import collections
import hashlib
import uuid
from datetime import timedelta

import pytest

from clockhand.domain import cron, hashing, spec

JOB = uuid.UUID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
JOBS = [uuid.UUID(int=number) for number in range(4_000)]


def test_construction_as_written_down() -> None:
    digest = hashlib.sha256(b"hour\x00" + bytes.fromhex("6ba7b8109dad41d180b400c04fd430c8")).digest()
    assert hashing.below(24, job_id=JOB, name="hour") == int.from_bytes(digest[:8], "big") * 24 // 2**64


PINNED = [
    ("H H * * *", "47 16 * * *"),
    ("H H H H H", "47 16 1 1 2"),
    ("H/15 * * * *", "11-59/15 * * * *"),
    ("H(0-29) * * * *", "23 * * * *"),
    ("h(0-29)/10 * * * *", "7-29/10 * * * *"),
    ("H(0-29),H(30-59) * * * *", "23,53 * * * *"),
    ("H/90 * * * *", "47 * * * *"),
    ("0 H/6 * * *", "0 4-23/6 * * *"),
    ("H H(0-5) * * *", "47 4 * * *"),
    ("0 0 H/7 * *", "0 0 1-28/7 * *"),
    ("0 0 * * H(mon-FRI)", "0 0 * * 3"),
    ("H,30 8 * * THU", "47,30 8 * * thu"),
]


@pytest.mark.parametrize(("expression", "settled"), PINNED)
def test_settled_for_ever(expression: str, settled: str) -> None:
    assert cron.settle(expression, JOB) == settled


@pytest.mark.parametrize("expression", ["0 2 * * THU", "@hourly", "@midnight", "  0 0 1 MAR *", "0 0 * * thu,5"])
def test_without_an_h_nothing_changes(expression: str) -> None:
    assert cron.settle(expression, JOB) is expression


def test_fields_are_independent_and_even() -> None:
    settled = [cron.settle("H H H H H", job).split() for job in JOBS]
    for at, size in enumerate((60, 24, 28, 12, 7)):
        seen = collections.Counter(fields[at] for fields in settled)
        assert len(seen) == size
        assert max(seen.values()) < 2 * len(JOBS) / size, "no value is twice as frequent as it should be"
    pairs = collections.Counter((fields[1], fields[4]) for fields in settled)
    assert len(pairs) == 24 * 7, "each hour comes with each weekday"


def test_delay_is_pinned_and_within_its_bound() -> None:
    assert hashing.delay(JOB, jitter_seconds=600) == timedelta(seconds=599, milliseconds=142)
    assert hashing.delay(JOB, jitter_seconds=0) == timedelta()
    delays = [hashing.delay(job, jitter_seconds=60) for job in JOBS]
    assert all(timedelta() <= one < timedelta(seconds=60) for one in delays)
    assert all(one % timedelta(milliseconds=1) == timedelta() for one in delays)
    quarters = collections.Counter(one // timedelta(seconds=15) for one in delays)
    assert all(900 < quarters[quarter] < 1_100 for quarter in range(4))


def test_delay_keeps_its_share_when_the_bound_changes() -> None:
    wide, narrow = (hashing.delay(JOB, jitter_seconds=seconds) for seconds in (6_000, 600))
    assert abs(wide / 10 - narrow) < timedelta(milliseconds=1)
    assert spec.JobSpec(schedule="@daily", jitter_seconds=600).delay(JOB) == narrow
