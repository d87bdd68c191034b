"""Failures as problem documents (RFC 9457): a sentence for people, and where in the body the mistake is."""

from __future__ import annotations

import http
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from clockhand import errors
from clockhand.api import sentences
from clockhand.domain import pointers, resources

MEDIA_TYPE = "application/problem+json"
CHALLENGE = 'Bearer realm="clockhand"'
_RETRY_SECONDS = 1.0
_PATH = re.compile(r"(?P<said>.*?) - at `(?P<path>\$.*)`", re.DOTALL)
_SOMEWHERE = "[...]"
"""How the decoder calls what is at some key of an object of any keys."""
_FIELD = re.compile(r"Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at one place of the body, by its JSON pointer (RFC 6901); the empty one means the whole body.

    Or what is wrong with a parameter of the query, by its name.
    """

    pointer: str
    detail: str
    parameter: str | None = None

    def document(self) -> resources.Mistake:
        """As it is sent."""
        pointer = self.pointer if self.parameter is None else None
        return resources.Mistake(detail=self.detail, pointer=pointer, parameter=self.parameter)


class Problem(Exception):
    """An answer other than success."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        mistakes: Sequence[Mistake] = (),
        retry_after: float | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.mistakes = mistakes
        self._headers = dict(headers)
        if retry_after is not None:
            self._headers["Retry-After"] = str(max(1, round(retry_after)))

    def response(self) -> web.Response:
        """The document."""
        body = msgspec.json.encode(
            resources.Problem(
                title=http.HTTPStatus(self.status).phrase,
                status=self.status,
                detail=str(self),
                errors=[one.document() for one in self.mistakes] or msgspec.UNSET,
            )
        )
        return web.Response(status=self.status, body=body, headers={**self._headers, "Content-Type": MEDIA_TYPE})


def unauthorized(detail: str, *, presented: bool) -> Problem:
    """Nobody vouches for the caller; `presented`: there was a token, and it is not good."""
    challenge = f'{CHALLENGE}, error="invalid_token"' if presented else CHALLENGE
    return Problem(401, detail, headers=[("WWW-Authenticate", challenge)])


def unavailable(detail: str, *, retry_after: float | None = None) -> Problem:
    """Not now. A worker comes again after the time named."""
    return Problem(503, detail, retry_after=_RETRY_SECONDS if retry_after is None else retry_after)


def invalid(mistakes: Sequence[Mistake]) -> Problem:
    """JSON that does not say what it should."""
    said = "; ".join(f"{one.pointer}: {one.detail}" if one.pointer else one.detail for one in mistakes)
    return Problem(422, said, mistakes=mistakes)


def wrong_parameter(name: str, detail: str) -> Problem:
    """A parameter of the query that cannot be used."""
    return Problem(422, f"{name}: {detail}", mistakes=[Mistake("", detail, parameter=name)])


def of_decoding(error: Exception, takes: Any) -> Problem:
    """What is wrong with a body that should be a `takes`: no JSON (400), or not of the form (422, with the place)."""
    if not isinstance(error, msgspec.ValidationError):
        return Problem(400, f"the body is not JSON that can be read: {error}")
    placed = _PATH.fullmatch(str(error))
    said, path = (placed["said"], placed["path"]) if placed else (str(error), "$")
    path = path.partition(_SOMEWHERE)[0]
    named = _FIELD.fullmatch(said)
    place = pointers.of_path(path[1:])
    sentence = sentences.of_decoder(said, () if place else sentences.fields_of(takes))
    return invalid([Mistake(place + (pointers.step(named["name"]) if named else ""), sentence)])


def of_error(error: errors.ClockhandError) -> Problem:
    """What one of our own errors is to a client."""
    match error:
        case errors.InvalidInput():
            return invalid([Mistake(pointers.of_path(error.field), error.sentence)])
        case errors.NotFound():
            return Problem(404, str(error))
        case errors.Changed():
            return Problem(412, str(error))
        case errors.Conflict() | errors.Stale():
            passes = error.retry_after if isinstance(error, errors.Conflict) else None
            return Problem(409, str(error), retry_after=passes)
        case errors.Refused():
            return Problem(403, str(error))
        case errors.Unavailable():
            return unavailable(f"it cannot be done now: {error}", retry_after=error.retry_after)
        case errors.Uncertain():
            return unavailable(f"it may or may not have been done; send the same again: {error}")
    return unavailable(f"it cannot be done now: {error}")
