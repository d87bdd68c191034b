"""The stretches of a zone must say at every instant what the zone itself says."""

from __future__ import annotations

import datetime
import itertools
import zoneinfo

import pytest

from clockhand import errors
from clockhand.domain import zones

START, END = (int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp()) for year in (2024, 2030))
PROBE_SECONDS = 36 * 3600


def offset(zone: zoneinfo.ZoneInfo, instant: int) -> int:
    found = datetime.datetime.fromtimestamp(instant, zone).utcoffset()
    assert found is not None
    return int(found.total_seconds())


def test_stretches_of_every_zone_agree_with_probes() -> None:
    for name in zoneinfo.available_timezones():
        zone = zones.load(name)
        stretches = list(zones.forward(name, since=START, until=END))
        assert stretches[0].start <= START
        assert stretches[-1].end > END
        for earlier, later in itertools.pairwise(stretches):
            assert earlier.end == later.start
        current = iter(stretches)
        stretch = next(current)
        for instant in range(START, END, PROBE_SECONDS):
            while instant >= stretch.end:
                stretch = next(current)
            assert stretch.offset == offset(zone, instant), (name, instant)


def test_backward_is_forward_reversed() -> None:
    forward = list(zones.forward("Europe/Paris", since=START, until=END))
    assert list(zones.backward("Europe/Paris", since=START, until=END)) == forward[::-1]


def test_gap_and_repeat_are_marked() -> None:
    first = int(datetime.datetime(2026, 3, 29, 1, tzinfo=datetime.UTC).timestamp())
    second = int(datetime.datetime(2026, 10, 25, 1, tzinfo=datetime.UTC).timestamp())
    found = {stretch.start: stretch for stretch in zones.forward("Europe/Paris", since=first, until=second)}
    summer, winter = found[first], found[second]
    assert (summer.offset, summer.gap_from, summer.fresh_from) == (7200, first + 3600, None)
    assert (winter.offset, winter.gap_from, winter.fresh_from) == (3600, None, second + 7200)


def test_unknown_zone_suggests_the_nearest() -> None:
    with pytest.raises(errors.InvalidInput, match="such as America/New_York"):
        zones.load("America/NewYork")
