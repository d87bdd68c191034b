"""Evaluating schedules: the product's own evaluation beside plain croniter, which is wrong at clock changes, and cronsim.

Cold means that nothing was parsed before; warm that every schedule is asked again from the instant it gave last.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from benchmarks import report

_ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Sydney")
_START = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
_KINDS: tuple[Callable[[int], str], ...] = (
    lambda n: f"{n % 60} * * * *",
    lambda n: f"{n % 60} {n // 60 % 24} * * *",
    lambda n: f"{n % 60} {n % 24} * * {n // 24 % 7}",
    lambda n: f"*/{2 + n % 29} {n % 24} * * *",
    lambda n: f"{n % 60} {n // 7 % 24} {1 + n % 28} * *",
)

Next = Callable[[str, str, datetime], datetime]


@dataclasses.dataclass(frozen=True)
class Settings:
    schedules: int = 1_000
    advances: int = 500
    repeats: int = 5


async def run(settings: Settings) -> report.Report:
    """Each repetition in a process of its own: a cold start cannot be had twice in one."""
    made = report.Report("schedule", dataclasses.asdict(settings))
    rows = []
    for name in _CANDIDATES:
        seen = [_child(name, settings) for _ in range(settings.repeats)]
        cold, warm = (report.median([one[at] for one in seen]) for at in (0, 1))
        rows.append((name, cold * 1000, warm * 1000))
    title = f"{settings.advances} advances over {settings.schedules} distinct schedules, median of {settings.repeats}"
    made.add(title, ("evaluation", "cold, CPU ms", "warm, CPU ms"), rows)
    return made


def distinct(count: int) -> list[tuple[str, str]]:
    """Expressions with their zones, of the kinds that people write."""
    return [(_KINDS[n % len(_KINDS)](n), _ZONES[n // len(_KINDS) % len(_ZONES)]) for n in range(count)]


def measure(name: str, *, schedules: int, advances: int) -> tuple[float, float]:
    """Seconds cold and warm for `advances` next slots spread over all schedules."""
    following = _CANDIDATES[name]()
    chosen = distinct(schedules)[:: max(1, schedules // advances)][:advances]
    seen: dict[tuple[str, str], datetime] = {}

    def advance() -> float:
        began = time.process_time()
        for key in chosen:
            seen[key] = following(*key, seen.get(key, _START))
        return time.process_time() - began

    cold = advance()
    return cold, min(advance() for _ in range(3))


def _child(name: str, settings: Settings) -> tuple[float, float]:
    words = [sys.executable, "-m", "benchmarks.schedule", name, str(settings.schedules), str(settings.advances)]
    cold, warm = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    return float(cold), float(warm)


def _clockhand() -> Next:
    from clockhand.domain import schedule

    return lambda expression, zone, after: schedule.parse(expression, zone=zone).next_after(after)


def _croniter() -> Next:
    import zoneinfo

    from croniter import croniter

    def following(expression: str, zone: str, after: datetime) -> datetime:
        found: datetime = croniter(expression, after.astimezone(zoneinfo.ZoneInfo(zone))).get_next(datetime)
        return found.astimezone(UTC)

    return following


def _cronsim() -> Next:
    import zoneinfo

    from cronsim import CronSim

    def following(expression: str, zone: str, after: datetime) -> datetime:
        return next(CronSim(expression, after.astimezone(zoneinfo.ZoneInfo(zone)))).astimezone(UTC)

    return following


_CANDIDATES: dict[str, Callable[[], Next]] = {"clockhand": _clockhand, "croniter": _croniter, "cronsim": _cronsim}


if __name__ == "__main__":
    print(*measure(sys.argv[1], schedules=int(sys.argv[2]), advances=int(sys.argv[3])))
