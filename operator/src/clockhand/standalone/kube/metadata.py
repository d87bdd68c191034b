"""Names, labels and what else every object has: what the API server fills in, and what it has against them."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from clockhand.standalone.kube import causes, kinds

Json = dict[str, Any]
_RANDOM = "bcdfghjklmnpqrstvwxz2456789"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE = f"({_QUALIFIED})?"
_START = "must consist of lower case alphanumeric characters"
_ENDS = "must start and end with an alphanumeric character"
NO_SUBDOMAIN = (
    f"a lowercase RFC 1123 subdomain {_START}, '-' or '.', and {_ENDS} (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN}')"
)
NO_LABEL = (
    f"a lowercase RFC 1123 label {_START} or '-', and {_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL}')"
)
_NO_QUALIFIED = (
    f"name part must consist of alphanumeric characters, '-', '_' or '.', and {_ENDS} (e.g. 'MyName',  or 'my.name',  or "
    f"'123-abc', regex used for validation is '{_QUALIFIED}')"
)
_NO_VALUE = (
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and {_ENDS} (e.g. "
    f"'MyValue',  or 'my_value',  or '12345', regex used for validation is '{_VALUE}')"
)
_NO_LONGER = "must be no more than {} characters"
_MAX_NAME, _MAX_PART = 253, 63
_MOST_ANNOTATED = 256 * 1024


def now(*, later: int = 0) -> str:
    """This second, or that many after it, as objects say it."""
    return (datetime.now(UTC) + timedelta(seconds=later)).strftime("%Y-%m-%dT%H:%M:%SZ")


def earlier(instant: str, seconds: int) -> str:
    """An instant of an object, that much earlier."""
    return (datetime.fromisoformat(instant) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def new(kind: kinds.Kind, metadata: Mapping[str, Any], namespace: str) -> Json:
    """The metadata of a new object: whatever only the server may say is its own."""
    given = {key: value for key, value in metadata.items() if value is not None and key not in _SERVERS}
    if not given.get("name") and given.get("generateName"):
        given["name"] = f"{given['generateName'][: _MAX_PART - 5]}{''.join(secrets.choice(_RANDOM) for _ in range(5))}"
    where = {"namespace": namespace} if kind.namespaced else {}
    given.pop("namespace", None)
    own: Json = {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
    if kind.counts_generations:
        own["generation"] = 1
    return {**given, **where, **own}


_SERVERS = frozenset(
    {"uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
     "managedFields", "selfLink"}
)  # fmt: skip


def kept(old: Mapping[str, Any], wanted: Mapping[str, Any]) -> Json:
    """The metadata of an object after an update: what only the server may say stays."""
    given = {key: value for key, value in wanted.items() if value is not None and key not in _SERVERS}
    return {**given, **{key: old[key] for key in (*_SERVERS, "name", "namespace") if key in old}}


def mistakes(metadata: Mapping[str, Any], *, named: bool = True) -> Iterator[causes.Cause]:
    """What is wrong with names, labels and annotations."""
    name = metadata.get("name")
    if named and not name:
        yield causes.required("metadata.name", "name or generateName is required")
    elif isinstance(name, str):
        yield from of_name("metadata.name", name)
    for key, value in (metadata.get("labels") or {}).items():
        yield from _of_key("metadata.labels", key)
        if len(value) > _MAX_PART:
            yield causes.invalid("metadata.labels", value, _NO_LONGER.format(_MAX_PART))
        if not re.fullmatch(_VALUE, value):
            yield causes.invalid("metadata.labels", value, _NO_VALUE)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from _of_key("metadata.annotations", key.lower())
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MOST_ANNOTATED:
        yield causes.too_long("metadata.annotations", _MOST_ANNOTATED)


def of_name(field: str, name: str, *, as_label: bool = False) -> Iterator[causes.Cause]:
    """What is wrong with a name; `as_label`: it may have no dots."""
    most = _MAX_PART if as_label else _MAX_NAME
    if len(name) > most:
        yield causes.invalid(field, name, _NO_LONGER.format(most))
    if not re.fullmatch(_LABEL if as_label else _SUBDOMAIN, name):
        yield causes.invalid(field, name, NO_LABEL if as_label else NO_SUBDOMAIN)


def _of_key(field: str, key: str) -> Iterator[causes.Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and not re.fullmatch(_SUBDOMAIN, prefix):
        yield causes.invalid(field, key, f"prefix part {NO_SUBDOMAIN}")
    if len(name) > _MAX_PART:
        yield causes.invalid(field, key, f"name part {_NO_LONGER.format(_MAX_PART)}")
    if not re.fullmatch(_QUALIFIED, name):
        yield causes.invalid(field, key, _NO_QUALIFIED)
