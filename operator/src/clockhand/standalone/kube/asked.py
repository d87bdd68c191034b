"""What a request says: its body, its selectors, and how a write or a deletion is meant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from clockhand.api.runs import status
from clockhand.standalone.kube import admission, answers, kinds, objects, patches, protobuf, selection

Json = dict[str, Any]
T = TypeVar("T")
APPLY = "application/apply-patch+yaml"
_FIELDS = frozenset({"metadata.name", "metadata.namespace"})
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_INT64 = 1 << 63
_VALIDATIONS = ("Ignore", "Warn", "Strict")


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    preconditions: _Preconditions | None = None
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    dry_run: tuple[str, ...] | None = None


async def body_of(request: web.Request, schema: str) -> Any:
    """The object in a body: JSON, or protobuf as kubectl writes those kinds that it knows itself."""
    if request.content_type != protobuf.MEDIA_TYPE:
        return await json_of(request)
    return protobuf.decode(await request.read(), protobuf.message_of(schema))


async def json_of(request: web.Request) -> Any:
    """The JSON of a body, with numbers as Go has them."""
    accepted = (answers.JSON, patches.MERGE, patches.STEPS, patches.STRATEGIC, APPLY, "application/octet-stream")
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


def converted(body: Any, form: type[T]) -> T:
    """The body as a value of `form`; 400 where it is none."""
    try:
        return msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        raise status.bad_request(f"the object provided is unrecognized: {error}") from error


def patch_of(form: str, patch: Any, kind: kinds.Kind) -> Callable[[Json], Any]:
    """What a patch of this media type makes of an object."""
    if form == patches.MERGE:
        return lambda old: patches.merged(old, patch)
    if form == patches.STEPS:
        return lambda old: patches.stepped(old, patch)
    if form == patches.STRATEGIC and kind.custom is None:
        return lambda old: patches.strategic(old, patch, kinds.definitions()[kind.schema])
    known = f"the supported types are {patches.STEPS} and {patches.MERGE}"
    raise status.Failure(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {known}")


async def removal_of(request: web.Request) -> objects.Removal:
    """How a deletion is meant."""
    is_said = bool(await request.read())
    options = converted(await body_of(request, _OPTIONS) if is_said else {}, _DeleteOptions)
    conditions = options.preconditions or _Preconditions()
    grace = whole(request, "gracePeriodSeconds") if "gracePeriodSeconds" in request.query else None
    if request.query.get("propagationPolicy", options.propagation_policy) == "Orphan":
        raise status.bad_request("propagationPolicy: Orphan is not served here; what an object owns goes with it")
    return objects.Removal(
        uid=conditions.uid or "",
        version=conditions.resource_version or "",
        grace=options.grace_period_seconds if grace is None else grace,
        dry_run="All" in [*request.query.getall("dryRun", []), *(options.dry_run or ())],
    )


def matches_of(request: web.Request, kind: kinds.Kind) -> selection.Matches:
    """What the selectors of the query let through."""
    known = _FIELDS if kind.custom is not None else None
    return selection.parse(request.query.get("labelSelector"), request.query.get("fieldSelector"), known=known)


def wish_of(request: web.Request) -> admission.Wish:
    """How a write is meant."""
    query: Mapping[str, str] = request.query
    validation = query.get("fieldValidation") or "Warn"
    if validation not in _VALIDATIONS:
        raise status.bad_request(f"fieldValidation: {validation!r} is none of {', '.join(_VALIDATIONS)}")
    dry_run = request.query.getall("dryRun", [])
    if any(one not in ("", "All") for one in dry_run):
        raise status.bad_request('dryRun: only "All" is known')
    manager, is_patch = query.get("fieldManager", ""), request.method == "PATCH"
    return admission.Wish("All" in dry_run, validation, manager, is_patch)


def whole(request: web.Request, name: str) -> int:
    """A whole number of the query that is not negative; 0 where there is none."""
    text = request.query.get(name, "")
    if text and not (text.isascii() and text.isdigit() and len(text) < 12):
        raise status.bad_request(f"{name}: {text!r} is not a whole number, or a negative one")
    return int(text) if text else 0
