"""What every request for the REST API passes through: who asks, how often, how much, and for what.

The order is that of cost: nothing is read of a body before its sender is known and let in, and while there is no room for
it. One that comes slowly takes no place meanwhile: that is looked for again once it is there.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from clockhand import errors
from clockhand.api import auth, bodies, problems
from clockhand.api.rest import parameters, rates, rights, room, routes, sending
from clockhand.domain import resources
from clockhand.engine import answers

_OTHER = "other"
_NOTHING_ELSE = "default-src 'none'; style-src 'unsafe-inline'"
"""Pages load nothing, and run nothing."""
_MAX_KEY = 255
Answering = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Front:
    """Answers requests by the table of routes. `pages` are documents for everybody, by their path.

    `body_seconds` is how long a body may take to arrive, and an answer to be taken.
    """

    def __init__(
        self,
        table: routes.Table,
        *,
        gate: auth.Gate,
        rights: rights.Rights,
        rates: rates.Rates,
        room: room.Room,
        pages: Mapping[str, tuple[str, bytes]],
        body_seconds: float = bodies.READ_SECONDS,
    ) -> None:
        self.table = table
        self._gate = gate
        self._rights = rights
        self._rates = rates
        self._room = room
        self._pages = pages
        self._body_seconds = body_seconds

    def find(self, method: str, path: str) -> tuple[str, Answering]:
        """The name of what a request is for, and what answers it."""
        if path in self._pages:
            return "page", functools.partial(self._page, allowed=("GET", "HEAD", "OPTIONS"))
        found = self.table.find(path)
        if found is None:
            return _OTHER, _nothing
        if method == "OPTIONS":
            return _OTHER, functools.partial(_options, allowed=_allowed(found))
        route = found.methods.get("GET" if method == "HEAD" else method)
        if route is None:
            return _OTHER, functools.partial(_not_allowed, allowed=_allowed(found))
        return route.name, functools.partial(self._answer, route=route, path=found.path)

    async def _page(self, request: web.BaseRequest, *, allowed: tuple[str, ...]) -> web.StreamResponse:
        if request.method == "OPTIONS":
            return await _options(request, allowed=allowed)
        if request.method not in allowed:
            return await _not_allowed(request, allowed=allowed)
        media_type, body = self._pages[request.path]
        return web.Response(body=body, headers={"Content-Type": media_type, "Content-Security-Policy": _NOTHING_ELSE})

    async def _answer(
        self, request: web.BaseRequest, *, route: routes.Route, path: Mapping[str, str]
    ) -> web.StreamResponse:
        authorization = request.headers.get("Authorization")
        caller = await self._gate.caller(authorization)
        query = parameters.read(route.query, request.query)
        asker = await self._rights.admit(caller, route, query["namespace"])
        self._rates.take(asker.owner)
        await self._room.look(asker.owner)

        async def still_allowed() -> bool:
            try:
                again = await self._gate.caller(authorization)
                return await self._rights.admit(again, route, query["namespace"]) == asker
            except problems.Problem as problem:
                return problem.status >= 500
            except errors.ClockhandError:
                return True  # nobody could say: that ends no answer

        with self._room.big_body(asker.owner) if _is_big(request, route) else contextlib.nullcontext():
            body, sent = await self._sent(request, route)
            call = routes.Call(
                owner=asker.owner,
                actor=asker.actor,
                role=asker.role,
                caller=caller,
                path=path,
                query=query,
                headers=request.headers,
                sent=sent,
                key=_key(request, body) if route.method == "POST" else None,
                still_allowed=still_allowed,
                may=functools.partial(self._rights.may, caller, asker.owner),
            )
            async with self._room.place(asker.owner):
                answer = await route.handle(call)
        if isinstance(answer, routes.Stream):
            return await sending.stream(request, answer, seconds=self._body_seconds)
        return await sending.whole(request, answer, seconds=self._body_seconds)

    async def _sent(self, request: web.BaseRequest, route: routes.Route) -> tuple[bytes, Any]:
        if route.method in ("GET", "DELETE"):
            return b"", None
        if request.can_read_body and request.content_type not in route.media_types and "json" in request.content_type:
            listed = " or ".join(route.media_types)
            raise problems.Problem(415, f"{request.content_type} is not taken here: send {listed}")
        body = await bodies.read(request, most=route.most_bytes, seconds=self._body_seconds)
        return body, _decoded(body, route.takes)


def _is_big(request: web.BaseRequest, route: routes.Route) -> bool:
    """Whether a body may be beyond the usual size, and what is made of it many times that."""
    length = request.content_length
    most = route.most_bytes if length is None and request.can_read_body else length or 0
    return min(most, route.most_bytes) > resources.MAX_BODY_BYTES


def _decoded(body: bytes, takes: Any) -> Any:
    """An empty body is an empty object: each field at its default."""
    text = body if body and not body.isspace() else b"{}"
    if takes is None:
        if text.strip() != b"{}":
            raise problems.Problem(422, "there is nothing to send here: leave the body out")
        return None
    try:
        value = _decoder(takes).decode(text)
    except RecursionError:
        raise bodies.too_deep() from None
    except msgspec.MsgspecError as error:
        raise problems.of_decoding(error, takes) from None
    bodies.check_depth(text)
    return value


@functools.cache
def _decoder(takes: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(takes)


def _key(request: web.BaseRequest, body: bytes) -> answers.Key | None:
    text = request.headers.get("Idempotency-Key")
    if text is None:
        return None
    if not (0 < len(text) <= _MAX_KEY and text.isascii() and text.isprintable()):
        raise problems.Problem(422, f"Idempotency-Key: write 1 to {_MAX_KEY} printable ASCII characters")
    return answers.Key.of(text, method=request.method, path=request.path_qs, body=body)


def _allowed(found: routes.Found) -> tuple[str, ...]:
    methods = [*found.methods, "OPTIONS"]
    return tuple(sorted([*methods, "HEAD"] if "GET" in methods else methods))


async def _nothing(request: web.BaseRequest) -> web.StreamResponse:
    raise problems.Problem(404, "there is nothing here: /docs lists what there is")


async def _options(request: web.BaseRequest, *, allowed: tuple[str, ...]) -> web.StreamResponse:
    return web.Response(status=204, headers={"Allow": ", ".join(allowed)})


async def _not_allowed(request: web.BaseRequest, *, allowed: tuple[str, ...]) -> web.StreamResponse:
    listed = ", ".join(allowed)
    raise problems.Problem(405, f"{request.method} is not supported here: {listed} are", headers=[("Allow", listed)])
