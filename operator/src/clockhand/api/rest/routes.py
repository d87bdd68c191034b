"""What a route is. One table of them is what dispatch, the OpenAPI document and the tests of who may do what come from."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from clockhand import errors
from clockhand.api import auth
from clockhand.domain import definition, resources, tokens
from clockhand.engine import answers

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
EVENTS = "text/event-stream"
RUNS_GROUP = "runs.clockhand.dev"
_PLACEHOLDER = re.compile(r"\{(?P<name>[a-z_]+)\}")


@dataclass(frozen=True, slots=True)
class Right:
    """What a user of the cluster has to be allowed in the namespace, as RBAC names it."""

    verb: str
    resource: str = "scheduledjobs"
    group: str = definition.GROUP
    subresource: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query. `type` is read as msgspec reads it, also `Annotated[...]`; a tuple may come repeated."""

    name: str
    type: Any
    text: str
    default: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was let in and read. `query` has every parameter of the route, `sent` the body as `takes` has it."""

    owner: str
    actor: str
    role: tokens.Role
    caller: auth.Caller
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, str]
    sent: Any = None
    key: answers.Key | None = None
    """The Idempotency-Key: any POST may have one."""
    still_allowed: Callable[[], Awaitable[bool]]
    """Asks once more whether the caller may do this, for answers that last."""
    may: Callable[[Right], Awaitable[bool]]
    """Whether a user of the cluster has another right in the namespace; nobody else ever does."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered: `body` is encoded as JSON (msgspec.Raw: is JSON already), None has none."""

    status: int
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict)


def kept(answer: answers.Answer) -> Answer:
    """An answer that was made by the engine, since it is kept under an Idempotency-Key."""
    headers = {} if answer.location is None else {"Location": answer.location}
    body = answer.body.encode()
    if answer.version is not None:
        headers["ETag"] = etag(answer.version, body)
    return Answer(answer.status, msgspec.Raw(body), headers)


def etag(version: int, body: bytes) -> str:
    """The header ETag of what is shown of a version: its status changes without making another one."""
    return f'"{version}-{hashlib.sha256(body).hexdigest()[:16]}"'


def id_of(call: Call, what: str) -> uuid.UUID:
    """The id that the path names; 404 for what can be none."""
    text = call.path["id"]
    try:
        return uuid.UUID(text)
    except ValueError:
        raise errors.NotFound(f"there is no {what} {text[:36]!r}: it is found by its id, a UUID") from None


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: each chunk is sent at once, and a client that does not take one in time is left."""

    chunks: AsyncGenerator[bytes]
    media_type: str = EVENTS


Handle = Callable[[Call], Awaitable[Answer | Stream]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one path. `gives` has the type of each good answer's body, by its status; failures are documents of
    their own (`problems.Problem`), `fails` with those that this route has besides what all of them have.
    """

    method: str
    path: str
    name: str
    """Of the operation, such as listJobs: in OpenAPI and in metrics."""
    summary: str
    role: tokens.Role
    right: Right
    handle: Handle
    takes: Any = None
    gives: Mapping[int, Any]
    query: Sequence[Parameter] = ()
    headers: Sequence[Parameter] = ()
    """Request headers that mean something here, for the document."""
    fails: Sequence[int] = ()
    most_bytes: int = resources.MAX_BODY_BYTES
    media_types: Sequence[str] = (JSON,)
    """Of the body that it takes."""
    answers_as: str = JSON
    """The media type of its good answers."""


@dataclass(frozen=True, slots=True)
class Found:
    """The routes of a path, by method, and what its placeholders stand for."""

    methods: Mapping[str, Route]
    path: Mapping[str, str]


class Table:
    """Every route. Two of one method and path, or of one name, are a mistake."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.routes = tuple(routes)
        by_path: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = by_path.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is there twice")
            methods[route.method] = route
        if len({route.name for route in routes}) != len(self.routes):
            raise ValueError("two routes have one name")
        self._plain = {path: Found(methods, {}) for path, methods in by_path.items() if "{" not in path}
        self._patterns = [(_pattern(path), methods) for path, methods in by_path.items() if "{" in path]

    def find(self, path: str) -> Found | None:
        """What is at this path; None: nothing."""
        if (plain := self._plain.get(path)) is not None:
            return plain
        for pattern, methods in self._patterns:
            if found := pattern.fullmatch(path):
                return Found(methods, found.groupdict())
        return None


def _pattern(path: str) -> re.Pattern[str]:
    parts = _PLACEHOLDER.split(path)
    texts = [re.escape(part) if index % 2 == 0 else f"(?P<{part}>[^/:]+)" for index, part in enumerate(parts)]
    return re.compile("".join(texts))
