"""Time zones as stretches of constant offset: the standard library tells the offset at an instant only.

The data is that of the `tzdata` package and never the host's, which differs from node to node: replicas that disagree
about an offset would fire two slots where there is one.

A schedule is right at clock changes when it knows three things of each stretch: where it ends, which wall times were
skipped at its start, and which of its wall times have been on the wall before.
"""

from __future__ import annotations

import datetime
import difflib
import importlib.resources
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import tzdata

from clockhand import errors

FIELD = "spec.timeZone"
_SCAN = 4 * 86_400  # no zone has changed its clock twice within six days since 1970
_MAX_YEAR = 9_990
_DATA = importlib.resources.files(tzdata)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Instants [start, end), seconds since 1970 UTC, with one offset; wall time = instant + offset."""

    start: int
    end: int
    offset: int
    gap_from: int | None = None  # wall times [gap_from, start + offset) were skipped at start
    fresh_from: int | None = None  # wall times before this one are shown for the second time


@lru_cache(maxsize=1_024)
def load(name: str) -> zoneinfo.ZoneInfo:
    """The zone of an IANA name, or one sentence that suggests the nearest name."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1, cutoff=0.7)
        hint = near[0] if near else "UTC or Europe/Berlin"
        sentence = f'"{name[:64]}" is not an IANA time zone: write a name such as {hint}'
        raise errors.InvalidInput(FIELD, sentence)
    with _DATA.joinpath("zoneinfo", name).open("rb") as file:
        return zoneinfo.ZoneInfo.from_file(file, key=name)


def version() -> str:
    """The release of the zone data, such as 2026a; later ones sort behind."""
    return str(tzdata.IANA_VERSION)


def forward(name: str, *, since: int, until: int) -> Iterator[Stretch]:
    """The stretches that touch [since, until], in order; the first may start earlier, the last end later."""
    for year in range(_year(since), _year(until) + 1):
        for stretch in _stretches(name, year):
            if stretch.end > since and stretch.start <= until:
                yield stretch


def backward(name: str, *, since: int, until: int) -> Iterator[Stretch]:
    """The same stretches, latest first."""
    for year in range(_year(until), _year(since) - 1, -1):
        for stretch in reversed(_stretches(name, year)):
            if stretch.end > since and stretch.start <= until:
                yield stretch


def _year(instant: int) -> int:
    try:
        year = (datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=instant)).year
    except OverflowError:
        year = _MAX_YEAR if instant > 0 else 2
    return min(max(year, 2), _MAX_YEAR)


@lru_cache(maxsize=1)
def names() -> frozenset[str]:
    """Every IANA name that is known."""
    return frozenset(_DATA.joinpath("zones").read_text(encoding="ascii").split())


@lru_cache(maxsize=4_096)
def _stretches(name: str, year: int) -> tuple[Stretch, ...]:
    """One calendar year (UTC) of a zone; no zone shows a wall time twice across the turn of a year."""
    start, end = _year_start(year), _year_start(year + 1)
    stretches: list[Stretch] = []
    offset = _offset(load(name), start)
    fresh: int | None = None
    gap: int | None = None
    for at, before, after in _changes(name, year):
        stretches.append(Stretch(start, at, before, gap, fresh))
        gap = at + before if after > before else None
        fresh = at + before if after < before else None
        start, offset = at, after
    stretches.append(Stretch(start, end, offset, gap, fresh))
    return tuple(stretch for stretch in stretches if stretch.start < stretch.end)


@lru_cache(maxsize=4_096)
def _changes(name: str, year: int) -> tuple[tuple[int, int, int], ...]:
    """(instant, offset before, offset after) of each change in [start of the year, start of the next)."""
    zone, end = load(name), _year_start(year + 1)
    at = _year_start(year) - 1
    offset = _offset(zone, at)
    found: list[tuple[int, int, int]] = []
    while at < end - 1:
        step = min(at + _SCAN, end - 1)
        if (later := _offset(zone, step)) != offset:
            change = _bisect(zone, low=at, high=step, offset=offset)
            found.append((change, offset, later))
        at, offset = step, later
    return tuple(found)


def _bisect(zone: zoneinfo.ZoneInfo, *, low: int, high: int, offset: int) -> int:
    while high - low > 1:
        middle = (low + high) // 2
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: zoneinfo.ZoneInfo, instant: int) -> int:
    offset = datetime.datetime.fromtimestamp(instant, zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _year_start(year: int) -> int:
    return (datetime.date(year, 1, 1).toordinal() - datetime.date(1970, 1, 1).toordinal()) * 86_400
