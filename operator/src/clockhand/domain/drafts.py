"""A job as it is sent over REST: flat JSON, read by the rules of a ScheduledJob's spec.

What a mistake is called is what its writer sees: `retry.maxAttempts`, where an object would have `spec.retry.maxAttempts`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from clockhand import errors
from clockhand.domain import declared, documents, fields, resources, spec

MAX_NAME = 63
MAX_LABELS = 64
_AT = {"runAt": "at", "run_at": "at"}
"""Other names that people know the field by."""
_PAYLOAD = "payload"
_NUL = b"\\u0000"
_ANY_DIGIT = bytes.maketrans(b"123456789", b"0" * 9)
_LONG_NUMBER = b"0" * 19
"""One that may be beyond 64 bits, its digits told apart no more."""
_NO_JSON = (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError)
"""What the encoder raises for what was not decoded from JSON, or is beyond what we keep of it."""
_SPEC = fields.TABLE.children("")
_KNOWN = (*_SPEC, *sorted(resources.OWN_FIELDS), *sorted(resources.SERVER_FIELDS), *_AT)
_DNS_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_DNS_LABEL}([.]{_DNS_LABEL})*", re.ASCII)
_WORD = "[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = re.compile(rf"([a-z0-9]([-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_WORD}", re.ASCII)
_LABEL_VALUE = re.compile(rf"({_WORD})?", re.ASCII)
_OF_THE_SPEC = re.compile(r"(?<![\w.])spec\.")
_REMEMBERED_BYTES = 2_048
"""Of a spec: larger ones are rare, and not worth the memory."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody wants of a job. Without a name it gets one from its id, or keeps the one that it has."""

    name: str | None
    labels: dict[str, str] | None
    spec: declared.Written


def read(document: object, *, new: bool) -> Draft:
    """Reads a job, or raises InvalidInput with the path of the field. A `new` one-shot does not stay for ever."""
    given = _fields(document)
    name = _name(given.pop("name", None))
    labels = _labels(given.pop("labels", None))
    payload = _payload(given.pop(_PAYLOAD)) if _PAYLOAD in given else None
    if new and given.get("at") is not None:
        given.setdefault("ttlSecondsAfterFinished", resources.TTL_SECONDS)
    try:
        written = _written(given)
    except errors.InvalidInput as error:
        raise flat(error) from None
    if payload is not None:
        written = declared.Written(
            written.job, written.spec_json, payload, written.template_json, written.template_hash
        )
    return Draft(name, labels, written)


def merged(document: Mapping[str, object], patch: object) -> dict[str, object]:
    """A job as it is shown, with a merge patch (RFC 7396) applied."""
    return _merged(document, _fields(patch))


def shown(spec_json: str) -> Mapping[str, object]:
    """The fields of a stored spec as they are shown: those that say nothing are left out."""
    return _shown(spec_json) if len(spec_json) <= _REMEMBERED_BYTES else _shown.__wrapped__(spec_json)


def plain(sentence: str) -> str:
    """A sentence about a spec, for who writes jobs that are flat."""
    return _OF_THE_SPEC.sub("", sentence)


def flat(error: errors.InvalidInput) -> errors.InvalidInput:
    """A mistake in a spec, for who writes jobs that are flat."""
    return errors.InvalidInput(
        "" if error.field == "spec" else error.field.removeprefix("spec."), plain(error.sentence)
    )


@lru_cache(maxsize=4_096)
def _shown(spec_json: str) -> Mapping[str, object]:
    stored: dict[str, object] = msgspec.json.decode(spec_json)
    return {name: value for name, value in stored.items() if value is not None and value != []}


def _fields(document: object) -> dict[str, object]:
    """The fields that count, by the names that the spec has for them."""
    if not isinstance(document, Mapping):
        raise errors.InvalidInput("", f"must be an object, not {documents.kind_of(document)}")
    given: dict[str, object] = {}
    for key, value in document.items():
        sent = str(key)
        name = _AT.get(sent, sent)
        if name in given:
            raise errors.InvalidInput(sent, f"says what {name} says: leave one of them out")
        if name in _SPEC or name in resources.OWN_FIELDS:
            given[name] = value
        elif name not in resources.SERVER_FIELDS:
            raise errors.InvalidInput(name, documents.unknown(name, _KNOWN))
    return given


def _written(given: dict[str, object]) -> declared.Written:
    try:
        text = msgspec.json.encode(given)
    except _NO_JSON:
        return declared.written(spec.parse(given))  # which says what is wrong with it
    return _known(text) if len(text) <= _REMEMBERED_BYTES else declared.written(spec.parse(given))


@lru_cache(maxsize=4_096)
def _known(text: bytes) -> declared.Written:
    """Most jobs of an owner share few specs, their payloads apart."""
    return declared.written(spec.parse(msgspec.json.decode(text)))


def _name(name: object) -> str | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise errors.InvalidInput("name", f"must be a string, not {documents.kind_of(name)}")
    if len(name) > MAX_NAME:
        raise errors.InvalidInput("name", f"must be at most {MAX_NAME} characters")
    if not _NAME.fullmatch(name):
        sentence = "is no name: write lower-case letters, digits and dashes, such as nightly-report"
        raise errors.InvalidInput("name", sentence)
    return name


def _labels(labels: object) -> dict[str, str] | None:
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise errors.InvalidInput("labels", f"must be an object, not {documents.kind_of(labels)}")
    if len(labels) > MAX_LABELS:
        raise errors.InvalidInput("labels", f"must be at most {MAX_LABELS} entries, not {len(labels)}")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            sentence = "has a key that is none: write one such as team or acme.com/team"
            raise errors.InvalidInput("labels", sentence)
        if not isinstance(value, str):
            raise errors.InvalidInput(f"labels[{key}]", f"must be a string, not {documents.kind_of(value)}")
        if not _LABEL_VALUE.fullmatch(value):
            sentence = (
                "must be at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at each end"
            )
            raise errors.InvalidInput(f"labels[{key}]", sentence)
    return dict(labels) or None


def _payload(payload: object) -> str:
    try:
        encoded = spec.check_payload(payload)
    except errors.InvalidInput as error:
        raise errors.InvalidInput(_PAYLOAD, error.sentence) from None
    except _NO_JSON:
        encoded = b""
    if not encoded or _is_suspect(encoded):
        documents.check_text(payload, at=_PAYLOAD)  # what is wrong, and where, if there is anything
    return encoded.decode()


def _is_suspect(encoded: bytes) -> bool:
    """Whether JSON may hold what cannot be stored."""
    if _NUL in encoded or encoded.count(b"[") + encoded.count(b"{") > documents.MAX_DEPTH:
        return True
    return _LONG_NUMBER in encoded.translate(_ANY_DIGIT)


def _merged(target: object, patch: Mapping[str, object]) -> dict[str, object]:
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value) if isinstance(value, Mapping) else value
    return result
