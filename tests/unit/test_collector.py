"""The garbage collector stays out of the way of batches."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from clockhand import collector


@pytest.fixture
def restored() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("restored")
def test_a_batch_of_values_is_no_reason_to_look_for_cycles() -> None:
    collector.rarely()
    gc.collect()
    before = [one["collections"] for one in gc.get_stats()]
    kept = [[number] for number in range(10_000)]
    assert [one["collections"] for one in gc.get_stats()] == before
    assert len(kept) == 10_000


@pytest.mark.usefixtures("restored")
def test_what_was_loaded_is_not_looked_through() -> None:
    collector.rarely()
    assert gc.get_freeze_count() > 10_000


@pytest.mark.usefixtures("restored")
def test_cycles_are_still_found() -> None:
    collector.rarely()
    before = gc.get_stats()[0]["collections"]
    kept = [[number] for number in range(100_000)]
    assert gc.get_stats()[0]["collections"] > before
    assert len(kept) == 100_000
