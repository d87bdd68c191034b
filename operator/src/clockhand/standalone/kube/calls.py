"""The calls on objects over HTTP: each method of a path as a verb, its body as an object, its result as an answer."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from clockhand import errors
from clockhand.api.runs import status
from clockhand.standalone.kube import (
    accounts,
    admission,
    answers,
    asked,
    objects,
    patches,
    reviews,
    scale,
    selection,
    watching,
)
from clockhand.standalone.kube import settings as settled
from clockhand.standalone.kube.targets import Target

Json = dict[str, Any]
_POOLS_MANAGER = "clockhand-pools"
_NO_APPLY = "server-side apply is not served here: leave --server-side out, and kubectl merges by itself"
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


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
        shape, matches = answers.shape_of(request), asked.matches_of(request, target.kind)
        version, after = _place_of(request.query.get("continue", ""), self._objects.store.version)
        found = self._objects.store.listed(target.kind.resource, target.namespace)
        bodies = [body for body in found if matches(body) and _place(body) > after]
        limit = asked.whole(request, "limit")
        metadata: Json = {"resourceVersion": str(version)}
        if limit and len(bodies) > limit:
            metadata["remainingItemCount"] = len(bodies) - limit
            bodies = bodies[:limit]
            metadata["continue"] = _token(version, _place(bodies[-1]))
        return answers.answer(answers.listed(target.kind, bodies, shape, metadata))

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        matches = asked.matches_of(request, target.kind)
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
        body = await asked.body_of(request, target.kind.schema)
        made = await self._objects.create(target.kind, target.namespace, body, asked.wish_of(request))
        return answers.answer(
            answers.shaped(target.kind, made.body, answers.shape_of(request)), code=201, warnings=made.warnings
        )

    async def _edit(self, request: web.Request, target: Target) -> web.Response:
        wish = asked.wish_of(request)
        if request.method == "PATCH" and request.content_type == asked.APPLY:
            made = await self._apply(request, target, wish)
        else:
            edit = await self._edit_of(request, target)
            made = await self._objects.change(target.kind, target.key, edit, wish, part=target.part)
        return answers.answer(answers.shaped(target.kind, made.body, answers.shape_of(request)), warnings=made.warnings)

    async def _edit_of(self, request: web.Request, target: Target) -> Callable[[Json], Any]:
        if request.method == "PUT":
            whole = await asked.body_of(request, target.kind.schema)
            return lambda old: whole
        return asked.patch_of(request.content_type, await asked.json_of(request), target.kind)

    async def _apply(self, request: web.Request, target: Target, wish: admission.Wish) -> admission.Admitted:
        """The operator applies what it keeps for pools, as nobody else does here."""
        if wish.manager != _POOLS_MANAGER or target.kind.custom is not None or target.part:
            raise status.Failure(415, "UnsupportedMediaType", _NO_APPLY)
        return await self._objects.apply(target.kind, target.namespace, target.name, await asked.json_of(request), wish)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        removal = await asked.removal_of(request)
        if target.name:
            last = await self._objects.delete(target.kind, target.key, removal)
            return answers.answer(answers.farewell(target, last, answers.shape_of(request)))
        matches = asked.matches_of(request, target.kind)
        found = [one for one in self._objects.store.listed(target.kind.resource, target.namespace) if matches(one)]
        for body in found:
            one = Target(target.kind, body["metadata"].get("namespace", ""), body["metadata"]["name"])
            try:
                await self._objects.delete(target.kind, one.key, removal)
            except status.Failure as failure:
                if failure.code != 404:  # somebody else was faster
                    raise
        return answers.answer(answers.listed(target.kind, found, answers.shape_of(request), {"resourceVersion": ""}))

    async def _of_part(self, request: web.Request, target: Target, verb: str) -> web.StreamResponse:
        found = self._objects.get(target.kind, target.namespace, target.name)
        match target.part, verb:
            case "log", "get":
                return await self._log(request, found)
            case "token", "create":
                body = await asked.body_of(request, reviews.TOKEN_REQUEST)
                return answers.answer(reviews.token_request(found, body, self._accounts), code=201)
            case "scale", "get":
                return answers.answer(scale.shown(target.kind, found))
            case "scale", ("patch" | "update"):
                return await self._scale(request, target)
        raise status.method_not_allowed(f"{verb} is not supported on {target.kind.plural}/{target.part}")

    async def _scale(self, request: web.Request, target: Target) -> web.Response:
        sent, is_whole = await asked.json_of(request), request.method == "PUT"

        def edit(old: Json) -> Json:
            wanted = sent if is_whole else patches.merged(scale.shown(target.kind, old), sent)
            return scale.set_on(old, asked.converted(wanted, scale.Wanted))

        made = await self._objects.change(target.kind, target.key, edit, asked.wish_of(request))
        return answers.answer(scale.shown(target.kind, made.body))

    async def _log(self, request: web.Request, pod: Json) -> web.StreamResponse:
        query = request.query
        wanted = settled.LogRequest(
            container=query.get("container", ""),
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            tail_lines=asked.whole(request, "tailLines") if "tailLines" in query else None,
            limit_bytes=asked.whole(request, "limitBytes") or None,
            since_seconds=asked.whole(request, "sinceSeconds") or None,
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
