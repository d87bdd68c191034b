"""The stretches of a zone must say at every instant what the zone itself says, from data that all replicas share."""

from __future__ import annotations

import datetime
import itertools
import shutil
import zoneinfo
from collections.abc import Iterator
from pathlib import Path

import pytest
import tzdata

from clockhand import errors
from clockhand.domain import schedule, zones

START, END = (int(datetime.datetime(year, 1, 1, tzinfo=datetime.UTC).timestamp()) for year in (2024, 2030))
PROBE_SECONDS = 36 * 3600
SHIPPED = Path(tzdata.__file__).parent / "zoneinfo"


def offset(zone: zoneinfo.ZoneInfo, instant: int) -> int:
    found = datetime.datetime.fromtimestamp(instant, zone).utcoffset()
    assert found is not None
    return int(found.total_seconds())


def test_stretches_of_every_zone_agree_with_probes() -> None:
    for name in zones.names():
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


@pytest.fixture
def doctored(tmp_path: Path) -> Iterator[Path]:
    """A host whose database says that Paris keeps Tokyo's time, and knows a zone of its own."""
    (tmp_path / "Europe").mkdir()
    for name in ("Europe/Paris", "localtime"):
        shutil.copy(SHIPPED / "Asia/Tokyo", tmp_path / name)
    zoneinfo.reset_tzpath(to=[tmp_path])
    zoneinfo.ZoneInfo.clear_cache()
    for memo in (zones.load, zones.names, zones._stretches, zones._changes, schedule._next):
        memo.cache_clear()
    yield tmp_path
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("doctored")
def test_database_of_the_host_is_not_used() -> None:
    noon = datetime.datetime(2026, 1, 15, 12, tzinfo=datetime.UTC)
    assert noon.astimezone(zoneinfo.ZoneInfo("Europe/Paris")).hour == 21, "the host lies"
    assert noon.astimezone(zones.load("Europe/Paris")).hour == 13
    slot = schedule.parse("0 14 * * *", zone="Europe/Paris").next_after(noon)
    assert slot == datetime.datetime(2026, 1, 15, 13, tzinfo=datetime.UTC)
    with pytest.raises(errors.InvalidInput, match="is not an IANA time zone"):
        zones.load("localtime")


def test_version_is_that_of_the_data() -> None:
    assert zones.version() == tzdata.IANA_VERSION
    assert (SHIPPED / "tzdata.zi").read_text(encoding="ascii").startswith(f"# version {zones.version()}\n")


def test_name_outside_the_data_is_never_a_path() -> None:
    for name in ("../__init__.py", "/etc/localtime", "Europe", "tzdata.zi", "zone.tab"):
        with pytest.raises(errors.InvalidInput, match="is not an IANA time zone"):
            zones.load(name)
