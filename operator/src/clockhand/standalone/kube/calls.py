"""The calls on objects over HTTP: each method of a path as a verb, its body as an object, its result as an answer."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from clockhand import errors
from clockhand.api.runs import status
from clockhand.standalone.kube import (
    accounts,
    admission,
    answers,
    kinds,
    objects,
    patches,
    protobuf,
    reviews,
    scale,
    selection,
    watching,
)
from clockhand.standalone.kube import settings as settled
from clockhand.standalone.kube.targets import Target

Json = dict[str, Any]
_APPLY = "application/apply-patch+yaml"
_POOLS_MANAGER = "clockhand-pools"
_NO_APPLY = "server-side apply is not served here: leave --server-side out, and kubectl merges by itself"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_INT64 = 1 << 63
_VALIDATIONS = ("Ignore", "Warn", "Strict")


class Calls:
    """The calls over one set of objects."""

    def __init__(self, verbs: objects.Objects, known: accounts.Accounts, kubelet: settled.Kubelet) -> None:
        self._objects = verbs
        self._accounts = known
        self._kubelet = kubelet

    async def answer(self, request: web.Request, target: Target) -> web.StreamResponse:
        """Any call on objects."""
        verb = verb_of(request, target)
        if target.part in ("log", "token", "scale"):
            return await self._of_part(request, target, verb)
        if verb not in target.kind.verbs or (target.part and verb in ("create", "delete")):
            raise status.method_not_allowed(f"{verb} is not supported on {target.kind.resource}")
        match verb:
            case "watch":
                return await self._watch(request, target)
            case "list":
                return self._list(request, target)
            case "get":
                body = self._objects.get(target.kind, target.namespace, target.name)
                return answers.answer(answers.shaped(target.kind, body, answers.shape_of(request)))
            case "create":
                return await self._create(request, target)
            case "delete" | "deletecollection":
                return await self._delete(request, target)
        return await self._edit(request, target)

    def _list(self, request: web.Request, target: Target) -> web.Response:
        shape, matches = answers.shape_of(request), _matches(request, target.kind)
        version, after = _place_of(request.query.get("continue", ""), self._objects.store.version)
        found = self._objects.store.listed(target.kind.resource, target.namespace)
        bodies = [body for body in found if matches(body) and _place(body) > after]
        limit = _whole(request, "limit")
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(bodies) > limit:
            metadata["remainingItemCount"] = len(bodies) - limit
            bodies = bodies[:limit]
            metadata["continue"] = _token(version, _place(bodies[-1]))
        return answers.answer(answers.listed(target.kind, bodies, shape, metadata))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        matches = _matches(request, target.kind)
        if target.name:
            named = selection.parse(None, f"metadata.name={target.name}")
            all_of = matches
            matches = lambda body: named(body) and all_of(body)  # noqa: E731
        wish = watching.wish_of(target, matches, answers.shape_of(request), dict(request.query))
        response = web.StreamResponse(headers={"Content-Type": answers.JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        await watching.Watch(self._objects.store, wish, response.write).run()
        await response.write_eof()
        return response

    async def _create(self, request: web.Request, target: Target) -> web.Response:
        body = await body_of(request, target.kind.schema)
        made = await self._objects.create(target.kind, target.namespace, body, _wish(request))
        return answers.answer(
            answers.shaped(target.kind, made.body, answers.shape_of(request)), code=201, warnings=made.warnings
        )

    async def _edit(self, request: web.Request, target: Target) -> web.Response:
        wish = _wish(request)
        if request.method == "PATCH" and request.content_type == _APPLY:
            made = await self._apply(request, target, wish)
        else:
            edit = await self._edit_of(request, target)
            made = await self._objects.change(target.kind, target.key, edit, wish, part=target.part)
        return answers.answer(answers.shaped(target.kind, made.body, answers.shape_of(request)), warnings=made.warnings)

    async def _edit_of(self, request: web.Request, target: Target) -> Callable[[Json], Any]:
        if request.method == "PUT":
            whole = await body_of(request, target.kind.schema)
            return lambda old: whole
        return _patch_of(request.content_type, await _json(request), target.kind)

    async def _apply(self, request: web.Request, target: Target, wish: admission.Wish) -> admission.Admitted:
        """The operator applies what it keeps for pools, as nobody else does here."""
        if wish.manager != _POOLS_MANAGER or target.kind.custom is not None or target.part:
            raise status.Failure(415, "UnsupportedMediaType", _NO_APPLY)
        return await self._objects.apply(target.kind, target.namespace, target.name, await _json(request), wish)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        removal = await _removal(request)
        if target.name:
            last = await self._objects.delete(target.kind, target.key, removal)
            return answers.answer(answers.farewell(target, last, answers.shape_of(request)))
        matches = _matches(request, target.kind)
        found = [one for one in self._objects.store.listed(target.kind.resource, target.namespace) if matches(one)]
        for body in found:
            one = Target(target.kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])
            await self._objects.delete(target.kind, one.key, removal)
        return answers.answer(answers.listed(target.kind, found, answers.shape_of(request), {"resourceVersion": ""}))

    async def _of_part(self, request: web.Request, target: Target, verb: str) -> web.StreamResponse:
        found = self._objects.get(target.kind, target.namespace, target.name)
        match target.part, verb:
            case "log", "get":
                return await self._log(request, found)
            case "token", "create":
                body = await body_of(request, reviews.TOKEN_REQUEST)
                return answers.answer(reviews.token_request(found, body, self._accounts), code=201)
            case "scale", "get":
                return answers.answer(scale.shown(target.kind, found))
            case "scale", ("patch" | "update"):
                return await self._scale(request, target)
        raise status.method_not_allowed(f"{verb} is not supported on {target.kind.plural}/{target.part}")

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        sent, is_whole = await _json(request), request.method == "PUT"

        def edit(old: Json) -> Json:
            wanted = sent if is_whole else patches.merged(scale.shown(target.kind, old), sent)
            return scale.set_on(old, wanted)

        made = await self._objects.change(target.kind, target.key, edit, _wish(request))
        return answers.answer(scale.shown(target.kind, made.body))

    async def _log(self, request: web.Request, pod: Json) -> web.StreamResponse:
        query = request.query
        wanted = settled.LogRequest(
            container=query.get("container", ""),
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            tail_lines=_whole(request, "tailLines") if "tailLines" in query else None,
            limit_bytes=_whole(request, "limitBytes") or None,
            since_seconds=_whole(request, "sinceSeconds") or None,
            timestamps=query.get("timestamps") == "true",
        )
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        lines = self._kubelet.log(pod, wanted)
        try:
            async for piece in lines:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(piece)
        except errors.InvalidInput as error:
            raise status.bad_request(error.sentence) from error
        finally:
            await lines.aclose()
        if not response.prepared:
            await response.prepare(request)
        await response.write_eof()
        return response


def verb_of(request: web.Request, target: Target) -> str:
    """The verb of a request, by the names of RBAC."""
    if request.method in ("GET", "HEAD"):
        if request.query.get("watch") in ("true", "1") and not target.part:
            return "watch"
        return "get" if target.name else "list"
    verb = _VERBS.get(request.method, request.method.lower())
    return "deletecollection" if verb == "delete" and not target.name else verb


async def body_of(request: web.Request, schema: str) -> Any:
    """The object in a body: JSON, or protobuf as kubectl writes those kinds that it knows itself."""
    if request.content_type != protobuf.MEDIA_TYPE:
        return await _json(request)
    return protobuf.decode(await request.read(), protobuf.message_of(schema))


async def _json(request: web.Request) -> Any:
    accepted = (answers.JSON, patches.MERGE, patches.STEPS, patches.STRATEGIC, _APPLY, "application/octet-stream")
    if request.content_type not in accepted:
        raise status.Failure(415, "UnsupportedMediaType", f"send {answers.JSON}, not {request.content_type}")
    try:
        return _as_in_go(msgspec.json.decode(await request.read()))
    except (msgspec.DecodeError, UnicodeDecodeError, OverflowError) as error:
        raise status.bad_request(f"the body is no JSON: {error}") from error


def _as_in_go(value: Any) -> Any:
    """Whole numbers beyond 64 bits become floating ones."""
    if isinstance(value, dict):
        return {name: _as_in_go(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_as_in_go(inner) for inner in value]
    return float(value) if isinstance(value, int) and not -_INT64 <= value < _INT64 else value


def _patch_of(form: str, patch: Any, kind: kinds.Kind) -> Callable[[Json], Any]:
    if form == patches.MERGE:
        return lambda old: patches.merged(old, patch)
    if form == patches.STEPS:
        return lambda old: patches.stepped(old, patch)
    if form == patches.STRATEGIC and kind.custom is None:
        return lambda old: patches.strategic(old, patch, kinds.definitions()[kind.schema])
    known = f"the supported types are {patches.STEPS} and {patches.MERGE}"
    raise status.Failure(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {known}")


async def _removal(request: web.Request) -> objects.Removal:
    body = await request.read()
    options: Any = {}
    if body and request.content_type != protobuf.MEDIA_TYPE:
        options = await _json(request)
    conditions = options.get("preconditions") or {}
    grace = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
    if request.query.get("propagationPolicy", options.get("propagationPolicy")) == "Orphan":
        raise status.bad_request("propagationPolicy: Orphan is not served here; what an object owns goes with it")
    return objects.Removal(
        uid=conditions.get("uid") or "",
        version=conditions.get("resourceVersion") or "",
        grace=None if grace is None else int(grace),
        dry_run="All" in [*request.query.getall("dryRun", []), *(options.get("dryRun") or ())],
    )


def _matches(request: web.Request, kind: kinds.Kind) -> selection.Matches:
    known = _FIELDS if kind.custom is not None else None
    return selection.parse(request.query.get("labelSelector"), request.query.get("fieldSelector"), known=known)


def _wish(request: web.Request) -> admission.Wish:
    query: Mapping[str, str] = request.query
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise status.bad_request(f"fieldValidation: {validation!r} is none of {', '.join(_VALIDATIONS)}")
    dry_run = request.query.getall("dryRun", [])
    if any(one not in ("", "All") for one in dry_run):
        raise status.bad_request('dryRun: only "All" is known')
    manager, is_patch = query.get("fieldManager", ""), request.method == "PATCH"
    return admission.Wish("All" in dry_run, validation, manager, is_patch)


def _place(body: Json) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _token(version: int, place: tuple[str, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([version, *place])).decode()


def _place_of(token: str, version: int) -> tuple[int, tuple[str, str]]:
    if not token:
        return version, ("", "")
    try:
        began, namespace, name = msgspec.json.decode(base64.urlsafe_b64decode(token), type=tuple[int, str, str])
    except (ValueError, msgspec.MsgspecError) as error:
        raise status.bad_request("continue key is not valid") from error
    return began, (namespace, name)


def _whole(request: web.Request, name: str) -> int:
    text = request.query.get(name, "")
    if text and not (text.isascii() and text.lstrip("-").isdigit() and len(text) < 12):
        raise status.bad_request(f"{name}: {text!r} is not a whole number")
    return int(text) if text else 0
