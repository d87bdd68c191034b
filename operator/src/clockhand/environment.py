"""How settings are read from `CLOCKHAND_*` variables: by whoever starts a process, every mistake at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Reader = Callable[[str], object]
"""From the text of a variable to its value; raises ValueError with what is wrong with it."""


def variable(field: str) -> str:
    """The environment variable of a setting."""
    return f"CLOCKHAND_{field.upper()}"


def read(environment: Mapping[str, str], readers: Mapping[str, Reader]) -> tuple[dict[str, Any], list[str]]:
    """The values of the variables that are set, and a sentence for each that cannot be read. An empty one is not set."""
    values: dict[str, Any] = {}
    mistakes = []
    for field, reader in readers.items():
        text = environment.get(variable(field))
        if text is None or text == "":
            continue
        try:
            values[field] = reader(text)
        except ValueError as error:
            mistakes.append(f"{variable(field)}: {error}")
    return values, mistakes


def whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def take(text: str) -> int:
        if not (text.isascii() and text.isdigit() and low <= int(text) <= high):
            raise ValueError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return take


def seconds(low: float, high: float) -> Callable[[str], float]:
    """A number of seconds from `low` to `high`."""

    def take(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise ValueError(f"{text!r} is not a number of seconds from {low:g} to {high:g}")
        return value

    return take


def switch(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    """One of `choices`."""

    def take(text: str) -> str:
        if text not in choices:
            raise ValueError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return take


def names(text: str) -> tuple[str, ...]:
    """Names separated by commas, each once, in order."""
    return tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))


def url(text: str) -> str:
    """The address of an API, without a slash at its end."""
    if not re.fullmatch(r"https?://[^/?#\s@]+(/[^?#\s]*)?", text):
        raise ValueError(f"{text!r} is not a URL such as http://clockhand-api:8080")
    return text.rstrip("/")
