"""What every caller of the API does alike: it shows a token, reads why it was refused, and waits before it asks again."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from clockhand import errors

_TOKEN_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


class Mistake(msgspec.Struct, frozen=True):
    """What is wrong at one place of a body, by its JSON pointer, or with a parameter, by its name."""

    pointer: str = ""
    detail: str = ""
    parameter: str | None = None


class Problem(msgspec.Struct, frozen=True):
    """Why something was not done, as a problem document says it (RFC 9457)."""

    title: str = ""
    detail: str = ""
    errors: Sequence[Mistake] = ()


class Credential:
    """A token, read again every few seconds where it is in a file: projected ones are replaced in their place."""

    def __init__(self, *, token: str | None, token_file: str | None) -> None:
        self._file = None if token_file is None else Path(token_file)
        self._token = token or ""
        self._read_at = float("-inf")

    def header(self) -> Mapping[str, str]:
        """The header that carries it; raises Refused where the file cannot be read."""
        now = time.monotonic()
        if self._file is not None and now - self._read_at > _TOKEN_SECONDS:
            try:
                self._token = self._file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise errors.Refused(f"the token file cannot be read: {error}") from error
            self._read_at = now
        return {"Authorization": f"Bearer {self._token}"}


def problem_of(body: bytes) -> Problem:
    """What a body says of a failure; an empty problem where somebody else than the API wrote it."""
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(body, type=Problem)
    return Problem()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that the other side asks for."""
    text = headers.get("Retry-After")
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def pause(failed: int, error: errors.ClockhandError | None = None, *, longest: float = _LONGEST_PAUSE) -> float:
    """Seconds before the next try: half to whole of a pause that doubles, and not before `retry_after`."""
    grown = min(_FIRST_PAUSE * 2.0 ** min(failed, 10), longest) * random.uniform(0.5, 1.0)
    asked = error.retry_after if isinstance(error, errors.Unavailable) else None
    return grown if asked is None else max(asked * random.uniform(1.0, 1.2), grown)
