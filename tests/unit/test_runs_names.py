"""Names of runs: what they say, and ids that sort with them."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhand.domain import ids, names, states

INSTANTS = st.datetimes(datetime(1970, 1, 2), datetime(9990, 1, 1), timezones=st.just(UTC))


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", fullmatch=True), INSTANTS)
def test_a_slots_name_says_its_job_and_instant(job: str, at: datetime) -> None:
    name = ids.run_name(job_name=job, scheduled_at=at, kind=states.RunKind.SLOT, key="")
    parsed = names.parse(name)
    assert parsed == names.SlotName(job, at.replace(microsecond=0), None)


@given(INSTANTS, st.integers(0, 10**17))
def test_a_skips_name_says_its_number(at: datetime, number: int) -> None:
    assert names.parse(names.of_skip("job", at, number)) == names.SlotName("job", at.replace(microsecond=0), number)


@pytest.mark.parametrize(
    "name",
    ["now", "job-20261399t000000z", "job-20261129t020000z-x", "-20261129t020000z", "job-20261129t020000z-skip", ""],
)
def test_other_names_say_nothing(name: str) -> None:
    assert names.parse(name) is None


@given(INSTANTS, INSTANTS, st.uuids())
def test_the_lowest_id_of_an_instant_is_below_its_runs(one: datetime, other: datetime, job: uuid.UUID) -> None:
    run = ids.run_id(job_id=job, scheduled_at=ids.whole_ms(other), kind=states.RunKind.SLOT, key="")
    assert (names.lowest(one) <= run) == (ids.whole_ms(one) <= ids.whole_ms(other))


@given(INSTANTS, st.integers(1, 2**60))
def test_ids_of_skips_sort_by_time_and_give_their_number_back(at: datetime, number: int) -> None:
    found = names.skip_uuid(at, number)
    assert names.skip_id_of(found) == number
    assert ids.scheduled_at_of(found) == ids.whole_ms(at)
    assert (
        names.skip_uuid(at, number)
        < names.skip_uuid(at, number + 1)
        < names.skip_uuid(at + timedelta(milliseconds=1), 1)
    )
