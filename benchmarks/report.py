"""What a suite found, for people as a plain table and for machines as JSON, always with what it was found on.

A figure without its machine, its settings and the cost of whoever made the load says little, so none is printed alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

Value = str | int | float | None
_NARROW = 100


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows under a heading; `columns` name the values of each row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]

    def __str__(self) -> str:
        cells = [list(self.columns), *([_shown(value) for value in row] for row in self.rows)]
        widths = [max(len(row[at]) for row in cells) for at in range(len(self.columns))]
        return "\n".join([self.title, *(_line(row, widths, numbers=self._numbers) for row in cells)])

    @property
    def _numbers(self) -> Sequence[bool]:
        kinds = [[row[at] for row in self.rows] for at in range(len(self.columns))]
        return [all(not isinstance(value, str) for value in values) for values in kinds]


@dataclasses.dataclass
class Report:
    """One suite's outcome. `generator_seconds` is the CPU time of the process that made the load."""

    suite: str
    settings: Mapping[str, Value | Sequence[Value]]
    tables: list[Table] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    generator_seconds: float = 0.0
    load_average: float = dataclasses.field(default_factory=lambda: os.getloadavg()[0])
    _cpu_before: float = dataclasses.field(default_factory=time.process_time, repr=False)

    def add(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
        """Another table; what the load generator has used so far is noted with it."""
        self.tables.append(Table(title, columns, rows))
        self.generator_seconds = time.process_time() - self._cpu_before
        self.load_average = max(self.load_average, os.getloadavg()[0])

    def __str__(self) -> str:
        settings = ", ".join(f"{key}={_shown_setting(value)}" for key, value in self.settings.items())
        cost = f"load generator {self.generator_seconds:.1f} s of CPU, load average up to {self.load_average:.1f}"
        parts = [f"== {self.suite} ({settings})", *map(str, self.tables), *self.notes, cost]
        return "\n\n".join(parts)


def as_json(reports: Sequence[Report]) -> str:
    """All of it, as one document."""
    return json.dumps({"machine": machine(), "reports": [_plain(report) for report in reports]}, indent=1)


def machine() -> Mapping[str, Value]:
    """What the figures were seen on."""
    names = ("psycopg", "aiohttp", "kopf", "croniter")
    return {
        "cores": os.cpu_count(),
        "memory_mib": _memory_mib(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
        "load_average": round(os.getloadavg()[0], 2),
    }


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all values do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p99 and the largest."""
    return quantile(values, 0.5), quantile(values, 0.99), max(values)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def _plain(report: Report) -> Mapping[str, object]:
    return {
        "suite": report.suite,
        "settings": dict(report.settings),
        "tables": [
            {"title": table.title, "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows]}
            for table in report.tables
        ],
        "notes": report.notes,
        "generator_cpu_seconds": round(report.generator_seconds, 3),
        "load_average": round(report.load_average, 2),
    }


def _memory_mib() -> int:
    first = Path("/proc/meminfo").read_text().splitlines()[0]
    return int(first.split()[1]) // 1024


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= _NARROW else f"{value:.3g}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else value


def _shown_setting(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _line(row: Sequence[str], widths: Sequence[int], *, numbers: Sequence[bool]) -> str:
    cells = [
        cell.rjust(width) if number else cell.ljust(width)
        for cell, width, number in zip(row, widths, numbers, strict=True)
    ]
    return f"  {'  '.join(cells)}".rstrip()
