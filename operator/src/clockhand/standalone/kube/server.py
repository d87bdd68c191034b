"""The HTTP face of the small API server: which path is what, and what every request passes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog
from aiohttp import web

from clockhand import errors
from clockhand.api.runs import negotiate, status
from clockhand.kube import access
from clockhand.standalone.kube import accounts, answers, asked, calls, discovery, openapi, refusals, reviews
from clockhand.standalone.kube import targets as paths

BODY_BYTES = 3 << 20
_HEALTHY = frozenset({"/healthz", "/livez", "/readyz"})
_GROUPS_OF_REVIEWS = tuple(f"/apis/{group}/v1/" for group in discovery.REVIEWS)
Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.get_logger(__name__)


class Server:
    """Names the user of a request, and finds who answers it."""

    def __init__(self, objects: calls.Calls, known: accounts.Accounts, address: str) -> None:
        self._calls = objects
        self._accounts = known
        self._address = address

    def application(self) -> web.Application:
        """The application for the port; whoever adds to it does so before it is served."""
        return web.Application(middlewares=[_statuses], client_max_size=BODY_BYTES)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request that nothing more particular has taken."""
        if request.path in _HEALTHY:
            return web.Response(text="ok")
        user = self._user(request)
        about = self._about_itself(request)
        if about is not None:
            return about
        if request.path.startswith(_GROUPS_OF_REVIEWS):
            return await self._review(request, user)
        target = paths.target_of(request.path)
        if target is None:
            raise status.no_such_path(request.path)
        if not accounts.decide(user.groups).allowed:
            raise refusals.not_allowed(user.username, calls.verb_of(request, target), target.kind, target.namespace)
        return await self._calls.answer(request, target)

    def _user(self, request: web.Request) -> access.User:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        found = self._accounts.user_of(token.strip()) if scheme.lower() == "bearer" else None
        if found is None:
            raise status.unauthorized()
        if any(header.lower().startswith("impersonate-") for header in request.headers):
            raise status.Failure(403, "Forbidden", "nobody can act as another user here: leave --as out")
        return found[0]

    def _about_itself(self, request: web.Request) -> web.Response | None:
        """The documents that say what there is."""
        if request.method != "GET":
            return None
        path = request.path.rstrip("/")
        if path in ("/api", "/apis") and negotiate.wants_discovery_document(request.headers.get("Accept", "")):
            body = msgspec.json.encode(discovery.document(legacy=path == "/api"))
            return web.Response(body=body, headers={"Content-Type": negotiate.DISCOVERY_TYPE})
        if path.startswith("/openapi/"):
            return _openapi(path, request)
        found = self._document(path)
        return None if found is None else answers.answer(found)

    def _document(self, path: str) -> Json | None:
        match path.strip("/").split("/"):
            case ["version"]:
                return discovery.VERSION
            case ["api"]:
                return discovery.legacy_versions(self._address)
            case ["apis"]:
                return discovery.group_list()
            case ["apis", name]:
                return discovery.group(name)
            case ["api", _] | ["apis", _, _]:
                return discovery.resource_list(path.strip("/"))
        return None

    async def _review(self, request: web.Request, user: access.User) -> web.Response:
        plural = request.path.rpartition("/")[2]
        if plural not in reviews.SCHEMAS:
            raise status.no_such_path(request.path)
        if request.method != "POST":
            raise status.method_not_allowed(f"{request.method} is not supported on {plural}")
        body = await asked.body_of(request, reviews.SCHEMAS[plural])
        if plural.startswith(("token", "subject")) and not accounts.decide(user.groups).allowed:
            raise status.forbidden(user.username, f"create {plural}", "")
        return answers.answer(reviews.answer(plural, body, self._accounts, user), code=201)


def _openapi(path: str, request: web.Request) -> web.Response:
    if path == "/openapi/v2":
        if answers.JSON not in request.headers.get("Accept", answers.JSON) and "*/*" not in request.headers.get(
            "Accept", ""
        ):
            raise status.Failure(406, "NotAcceptable", "this document is served as JSON alone")
        return web.Response(body=openapi.swagger(), content_type=answers.JSON)
    body = openapi.index() if path == "/openapi/v3" else openapi.group_version(path.removeprefix("/openapi/v3/"))
    if body is None:
        raise status.no_such_path(path)
    return web.Response(body=body, content_type=answers.JSON)


@web.middleware
async def _statuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure as a Status object."""
    try:
        return await handler(request)
    except status.Failure as failure:
        return answers.failed(failure)
    except errors.ClockhandError as error:
        return answers.failed(_failure_of(error))
    except web.HTTPRequestEntityTooLarge:
        return answers.failed(
            status.Failure(413, "RequestEntityTooLarge", f"a body may have {BODY_BYTES} bytes at most")
        )
    except RecursionError:
        return answers.failed(status.bad_request("the body is nested too deep"))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("request_failed", method=request.method, path=request.path)
        return answers.failed(status.Failure(500, "InternalError", "an internal error occurred; the log has more"))


def _failure_of(error: errors.ClockhandError) -> status.Failure:
    match error:
        case errors.InvalidInput():
            return status.bad_request(str(error))
        case errors.NotFound():
            return status.Failure(404, "NotFound", str(error))
        case errors.Conflict():
            return status.Failure(409, "Conflict", str(error))
    return status.Failure(503, "ServiceUnavailable", str(error))
