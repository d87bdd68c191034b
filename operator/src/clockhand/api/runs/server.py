"""The HTTP face of the runs API: which path is what, and what every request passes through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec
import structlog
from aiohttp import web

from clockhand import errors, metrics
from clockhand.api.runs import (
    backfill_watch,
    discovery,
    feed,
    frontproxy,
    group,
    lists,
    negotiate,
    objects,
    openapi,
    selection,
    status,
    table,
    watch,
    writes,
)
from clockhand.kube import access
from clockhand.store import changes, database, listing

IN_FLIGHT = 64
WATCHES = 1_000
_DATA_SECONDS = 20.0
_BODY_BYTES = 1 << 20
GROUP_PATH = f"/apis/{group.GROUP}"
_VERSION_PATH = f"/apis/{group.API_VERSION}"
_DISCOVERY = {GROUP_PATH: discovery.API_GROUP, _VERSION_PATH: discovery.RESOURCES}
_OPENAPI = {
    "/openapi/v2": openapi.V2,
    "/openapi/v3": openapi.V3_INDEX,
    f"/openapi/v3/{openapi.V3_PATH}": openapi.V3,
}
_CLUSTER = f"{_VERSION_PATH}/{group.RESOURCE}"
_COLLECTION = f"{_VERSION_PATH}/namespaces/{{namespace}}/{group.RESOURCE}"
_ONE = f"{_COLLECTION}/{{name}}"
_JSON = "application/json"
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_CUT = (
    f"only the newest {lists.MOST} runs of the last 24 hours are shown; choose with --field-selector "
    "spec.job=NAME, status.state=STATE or spec.day=YYYY-MM-DD"
)
_NO_EDIT = "runs cannot be edited; use the subresources cancel and retry"
_NO_COLLECTION = "runs cannot be deleted as a collection; cancel them one by one"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")
_USER = web.RequestKey("user", access.User)
log = structlog.get_logger(__name__)


class RunsServer:
    """Handlers over one database, one feed and one gatekeeper."""

    def __init__(
        self,
        db: database.Database,
        shared: feed.Feed,
        gatekeeper: frontproxy.Gatekeeper,
        *,
        kept_days: int,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        self._db = db
        self._feed = shared
        self._gatekeeper = gatekeeper
        self._writes = writes.Writes(db)
        self._kept_days = kept_days
        self._places = in_flight

    def application(self) -> web.Application:
        """The application for the aggregation port."""
        app = self._application("")
        app.router.add_get("/apis", self.groups)
        for path, document in _OPENAPI.items():
            app.router.add_get(path, _constant(document))
        return app

    def of_group(self) -> web.Application:
        """The group alone, for a server that has others beside it: its paths begin below `GROUP_PATH`."""
        return self._application(GROUP_PATH)

    def _application(self, below: str) -> web.Application:
        app = web.Application(middlewares=[_statuses, self._known_callers], client_max_size=_BODY_BYTES)
        for path, document in _DISCOVERY.items():
            app.router.add_get(path.removeprefix(below), _constant(document))
        app.router.add_route("*", _CLUSTER.removeprefix(below), self.collection)
        app.router.add_route("*", _COLLECTION.removeprefix(below), self.collection)
        app.router.add_route("*", _ONE.removeprefix(below), self.one)
        app.router.add_route("*", f"{_ONE.removeprefix(below)}/{{subresource}}", self.subresource)
        return app

    async def groups(self, request: web.Request) -> web.StreamResponse:
        """`/apis`: everything in one document for the aggregator, the plain list for others."""
        if negotiate.wants_discovery_document(request.headers.get("Accept", "")):
            body = msgspec.json.encode(discovery.DOCUMENT)
            return web.Response(body=body, headers={"Content-Type": negotiate.DISCOVERY_TYPE})
        return _answer(discovery.API_GROUP_LIST)

    async def collection(self, request: web.Request) -> web.StreamResponse:
        """List, watch, create."""
        namespace = request.match_info.get("namespace")
        match request.method:
            case "GET" if _is_watch(request):
                await self._allow(request, "watch")
                return await self._watch(request, _chosen(request, namespace))
            case "GET":
                await self._allow(request, "list")
                return await self._timed(self._list(request, _chosen(request, namespace)))
            case "POST" if namespace is not None:
                user = await self._allow(request, "create")
                return await self._timed(self._create(request, namespace, user))
            case "DELETE":
                raise status.method_not_allowed(_NO_COLLECTION)
        raise status.method_not_allowed(f"{request.method} is not supported on runs")

    async def one(self, request: web.Request) -> web.StreamResponse:
        """Get and, though not advertised, delete: it cancels."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        match request.method:
            case "GET" if _is_watch(request):
                await self._allow(request, "watch")
                chosen = selection.parse(namespace=namespace, fields=f"metadata.name={name}", labels=None)
                return await self._watch(request, chosen)
            case "GET":
                await self._allow(request, "get")
                return await self._timed(self._get(request, namespace, name))
            case "DELETE":
                user = await self._allow(request, "delete")
                return await self._timed(self._delete(request, namespace, name, user))
            case "PUT" | "PATCH":
                raise status.method_not_allowed(_NO_EDIT)
        raise status.method_not_allowed(f"{request.method} is not supported on a run")

    async def subresource(self, request: web.Request) -> web.StreamResponse:
        """cancel, retry, log; each with an RBAC rule of its own."""
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        which = request.match_info["subresource"]
        verb = group.SUBRESOURCES.get(which)
        if verb is None:
            raise status.no_such_path(request.path)
        if request.method != ("GET" if verb == "get" else "POST"):
            raise status.method_not_allowed(f"{request.method} is not supported on runs/{which}")
        user = await self._allow(request, verb)
        if which == "log":
            return await self._timed(self._log(request, namespace, name))
        caller = writes.Caller(namespace, user.username, writes.is_dry_run(request.query.getall("dryRun", [])))
        act = self._writes.cancel(caller, name) if which == "cancel" else self._writes.retry(caller, name)
        return _answer(await self._timed(act), code=201)

    async def _list(self, request: web.Request, chosen: selection.Selection) -> web.StreamResponse:
        shape = _shape(request)
        limit = _whole(request, "limit")
        async with self._db.transaction() as connection:
            page = await lists.page(connection, chosen, limit=limit, token=request.query.get("continue", ""))
        cut = page.cut or (bool(page.token) and not limit)
        return _answer(_list_body(page, shape), warnings=[_CUT] if cut else ())

    async def _get(self, request: web.Request, namespace: str, name: str) -> web.StreamResponse:
        shape = _shape(request)
        async with self._db.transaction() as connection:
            await listing.hold_still(connection)
            standing = await changes.newest(connection)
            run = await listing.by_name(connection, owner=group.owner_of(namespace), name=name)
            if run is None:
                raise status.not_found(name)
            payload, result = await listing.contents(connection, run.run_id)
            attempts = await listing.attempts(connection, run.run_id)
        version = changes.version(standing.epoch, standing.newest)
        match shape.form:
            case negotiate.Form.TABLE:
                return _answer(table.table([run], shape, version=version, now=standing.at))
            case negotiate.Form.METADATA:
                return _answer(objects.metadata_object(run, version, api=shape.version))
        return _answer(objects.detailed(run, version, payload=payload, result=result, attempts=attempts))

    async def _log(self, request: web.Request, namespace: str, name: str) -> web.StreamResponse:
        attempt = _whole(request, "attempt") or None
        async with self._db.transaction() as connection:
            run = await listing.by_name(connection, owner=group.owner_of(namespace), name=name)
            if run is None:
                raise status.not_found(name)
            text = await listing.log_tail(connection, run.run_id, attempt)
        if text is None:
            why = "no log is kept of it: only failed attempts leave one, and pods that are still there have theirs"
            raise status.Failure(404, "NotFound", f'run "{name}": {why}')
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    async def _create(self, request: web.Request, namespace: str, user: access.User) -> web.StreamResponse:
        if request.content_type not in (_JSON, "application/octet-stream"):
            raise status.Failure(415, "UnsupportedMediaType", f"send {_JSON}, not {request.content_type}")
        dry_run = writes.is_dry_run(request.query.getall("dryRun", []))
        validation = request.query.get("fieldValidation", "")
        body = await request.read()
        order = writes.order_of(body, namespace=namespace, validation=validation, kept_days=self._kept_days)
        made = await self._writes.create(writes.Caller(namespace, user.username, dry_run), order)
        return _answer(made, code=201, warnings=order.warnings)

    async def _delete(self, request: web.Request, namespace: str, name: str, user: access.User) -> web.StreamResponse:
        options = await _delete_options(request)
        dry_run = writes.is_dry_run([*request.query.getall("dryRun", []), *(options.get("dryRun") or [])])
        uid = str((options.get("preconditions") or {}).get("uid") or "")
        await self._writes.cancel(writes.Caller(namespace, user.username, dry_run), name, uid=uid)
        return _answer(status.success(name))

    async def _watch(self, request: web.Request, chosen: selection.Selection) -> web.StreamResponse:
        if self._feed.watchers >= WATCHES:
            raise status.busy()
        wish = watch.wish_of(chosen, _shape(request), dict(request.query))
        followed = backfill_watch.BackfillWatch if await self._names_a_backfill(chosen) else watch.Watch
        response = web.StreamResponse(headers={"Content-Type": _JSON, "Cache-Control": "no-cache, private"})

        async def write(line: bytes) -> None:
            if not response.prepared:
                response.enable_chunked_encoding()
                await response.prepare(request)
            if line:
                await response.write(line)

        try:
            await followed(self._db, self._feed, wish, write).run()
            await write(b"")
            await response.write_eof()
        except errors.ClockhandError as error:
            if not response.prepared:
                raise
            log.warning("watch_ended", error=str(error))
        except TimeoutError:
            _abort(request)  # a client that takes nothing: ended by force, for it would not take an end either
        return response

    async def _names_a_backfill(self, chosen: selection.Selection) -> bool:
        if chosen.name is None or chosen.namespace is None or chosen.impossible:
            return False
        async with self._db.transaction() as connection:
            run = await listing.by_name(connection, owner=group.owner_of(chosen.namespace), name=chosen.name)
        return run is not None and run.backfill is not None

    async def _timed(self, work: Coroutine[Any, Any, T]) -> T:
        """A bounded number at a time and a bounded time each."""
        if self._places <= 0:
            work.close()
            raise status.busy()
        self._places -= 1
        try:
            async with asyncio.timeout(_DATA_SECONDS):
                return await work
        except TimeoutError as error:
            raise status.Failure(504, "Timeout", "the request took too long; narrow its selectors") from error
        finally:
            self._places += 1

    async def _allow(self, request: web.Request, verb: str) -> access.User:
        user = request[_USER]
        action = access.Action(
            verb=verb,
            group=group.GROUP,
            version=group.VERSION,
            resource=group.RESOURCE,
            subresource=request.match_info.get("subresource", ""),
            namespace=request.match_info.get("namespace", ""),
            name=request.match_info.get("name", ""),
        )
        await self._gatekeeper.authorize(user, action)
        return user

    @web.middleware
    async def _known_callers(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # the aggregator reads discovery in its own name, and some of its calls name no user
        if self._gatekeeper.is_front_proxy(request) and request.method == "GET" and not _is_data(request):
            return await handler(request)
        request[_USER] = await self._gatekeeper.authenticate(request)
        return await handler(request)


@web.middleware
async def _statuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every failure as a Status object, and every answer counted."""
    response = await _as_status(request, handler)
    method = request.method if request.method in _METHODS else "other"
    metrics.RUNS_REQUESTS.labels(method, str(response.status)).inc()
    return response


async def _as_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except status.Failure as failure:
        return _failed(failure)
    except errors.ClockhandError as error:
        return _failed(status.of_error(error, request.match_info.get("name", "")))
    except web.HTTPRequestEntityTooLarge:
        return _failed(status.Failure(413, "RequestEntityTooLarge", f"a body may have {_BODY_BYTES} bytes at most"))
    except web.HTTPMethodNotAllowed:
        return _failed(status.method_not_allowed(f"{request.method} is not supported here"))
    except web.HTTPNotFound:
        return _failed(status.no_such_path(request.path))
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:
        log.exception("request_failed", method=request.method, path=request.path)
        return _failed(status.Failure(500, "InternalError", "an internal error occurred; the server's log has more"))


def _constant(document: Any) -> Handler:
    body = msgspec.json.encode(document)

    async def serve(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=_JSON)

    return serve


def _list_body(page: lists.Page, shape: negotiate.Shape) -> Any:
    metadata = {"resourceVersion": str(page.version), "continue": page.token}
    match shape.form:
        case negotiate.Form.TABLE:
            body = table.table(page.runs, shape, version=page.version, now=page.now)
            return {**body, "metadata": metadata}
        case negotiate.Form.METADATA:
            items = [objects.metadata_object(run, page.version, api=shape.version) for run in page.runs]
            kind, version = "PartialObjectMetadataList", f"meta.k8s.io/{shape.version}"
            return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}
    items = [objects.run_object(run, page.version) for run in page.runs]
    return {"kind": group.LIST_KIND, "apiVersion": group.API_VERSION, "metadata": metadata, "items": items}


def _answer(body: Any, *, code: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    response = web.Response(status=code, body=msgspec.json.encode(body), content_type=_JSON)
    for text in warnings:
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _failed(failure: status.Failure) -> web.Response:
    response = _answer(failure.body(), code=failure.code)
    if failure.retry_after:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response


def _chosen(request: web.Request, namespace: str | None) -> selection.Selection:
    query = request.query
    return selection.parse(namespace=namespace, fields=query.get("fieldSelector"), labels=query.get("labelSelector"))


def _shape(request: web.Request) -> negotiate.Shape:
    return negotiate.shape_of(request.headers.get("Accept", ""), request.query.get("includeObject"))


def _is_watch(request: web.Request) -> bool:
    return request.query.get("watch", "").lower() in ("1", "true")


def _is_data(request: web.Request) -> bool:
    return request.path.startswith(f"{_VERSION_PATH}/")


def _whole(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise status.bad_request(f"{name}: {text!r} is not a whole number")
    return int(text)


async def _delete_options(request: web.Request) -> dict[str, Any]:
    body = await request.read()
    if not body:
        return {}
    with contextlib.suppress(msgspec.MsgspecError):
        options = msgspec.json.decode(body, type=dict[str, Any])
        if isinstance(options.get("preconditions") or {}, dict) and isinstance(options.get("dryRun") or [], list):
            return options
    raise status.bad_request("the body is not DeleteOptions in JSON")


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
