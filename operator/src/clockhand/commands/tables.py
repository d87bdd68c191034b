"""Tables for people: plain columns for a pipe and for a terminal that only types, drawn ones for any other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

_TYPES_ONLY = ("dumb", "unknown")
Style = Callable[[Sequence[str]], str]
"""How a row of cells is drawn, in rich's words; empty: as any text."""


def drawn(head: Sequence[str], rows: Sequence[Sequence[str]], *, style: Style) -> str:
    """The table as a text."""
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    if draws():
        return _rich(head, rows, widths, style)
    return "".join(line(row, widths) for row in [head, *rows])


def draws() -> bool:
    """Whether stdout is a terminal that can do more than type."""
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") not in _TYPES_ONLY


def line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A row in columns; what is wider than its column shifts those behind it."""
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() + "\n"


def _rich(head: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int], style: Style) -> str:
    from rich import box, console, table, text

    shown = table.Table(box=box.SIMPLE_HEAD)
    for name in head:
        shown.add_column(name, no_wrap=True)
    for row in rows:
        shown.add_row(*(text.Text(cell) for cell in row), style=style(row))
    # a narrow terminal wraps the lines: an instant that is cut short helps nobody
    terminal = console.Console(width=sum(widths) + 4 * len(widths))
    with terminal.capture() as captured:
        terminal.print(shown)
    return captured.get()
