"""What `clockhand doctor` says of one thing that it looked at."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

_SHOWN = 5


class Verdict(enum.StrEnum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, why in a sentence, what to do about it, and some of the things that it is about."""

    verdict: Verdict
    sentence: str
    advice: str = ""
    samples: tuple[str, ...] = ()
    more: int = 0
    """How many others there are, of those that were looked at."""


def ok(sentence: str) -> Finding:
    return Finding(Verdict.OK, sentence)


def skipped(sentence: str) -> Finding:
    return Finding(Verdict.SKIPPED, sentence)


def warning(sentence: str, advice: str, things: Sequence[str] = ()) -> Finding:
    """Nothing is lost, but somebody should look."""
    return _about(Verdict.WARNING, sentence, advice, things)


def error(sentence: str, advice: str, things: Sequence[str] = ()) -> Finding:
    """A promise is broken, or will be at the next fault."""
    return _about(Verdict.ERROR, sentence, advice, things)


def _about(verdict: Verdict, sentence: str, advice: str, things: Sequence[str]) -> Finding:
    return Finding(verdict, sentence, advice, tuple(things[:_SHOWN]), max(len(things) - _SHOWN, 0))


def counted(number: int, thing: str, things: str | None = None) -> str:
    """`1 run`, `2 runs`."""
    return f"{number} {thing if number == 1 else things or f'{thing}s'}"
