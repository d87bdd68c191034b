"""Each fault of pools once, on processes and a real PostgreSQL: nothing is lost, and no word of a stale worker counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.faults.pools import catalogue, runner
from tests.faults.pools import stage as stages

FAULTS = [fault for _, several in runner.by_setting(catalogue.FAULTS) for fault in several if not fault.long]


@pytest.fixture(scope="module")
def arena() -> Iterator[stages.Arena]:
    with stages.arena() as made:
        yield made


@pytest.fixture(scope="module")
def stage(arena: stages.Arena, request: pytest.FixtureRequest) -> Iterator[stages.Stage]:
    with arena.stage(request.param) as made:
        yield made


@pytest.mark.parametrize(
    ("stage", "fault"),
    [pytest.param(fault.setting, fault, id=fault.name) for fault in FAULTS],
    indirect=["stage"],
    scope="module",
)
def test_survives(stage: stages.Stage, fault: catalogue.Fault) -> None:
    result = runner.execute(stage, fault, times=1)
    assert result.violations == []
    assert result.hits >= 1, "the fault did not hit, so nothing was shown"
