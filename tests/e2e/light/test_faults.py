"""Each fault once, on processes, a real PostgreSQL and a real API server: nothing is lost, nothing happens twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.faults import arena as arenas
from tests.faults import catalogue, runner


@pytest.fixture(scope="module")
def arena() -> Iterator[arenas.Arena]:
    with arenas.arena() as made, made.database():
        runner.start_crew(made)
        yield made


@pytest.mark.parametrize("fault", catalogue.FAULTS, ids=lambda fault: fault.name)
def test_survives(arena: arenas.Arena, fault: catalogue.Fault) -> None:
    result = runner.execute(arena, fault, times=1)
    assert result.violations == []
    assert result.hits == 1, "the fault did not hit, so nothing was shown"
