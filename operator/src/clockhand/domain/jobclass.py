"""What an administrator lets people run who may not create pods: the parsed `JobClass.spec`, and the pods that it makes."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from clockhand import errors
from clockhand.domain import classrun, documents, forms, pods, quantities, spec
from clockhand.domain.jobclass_fields import TABLE
from clockhand.domain.jobclass_fields import Allowed as Allowed

EVERYBODY = "*"
_ANY_TEXT = "*"
_RESOURCES = ("requests", "limits")

Json = dict[str, Any]


class ClassSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One class."""

    namespaces: tuple[str, ...]
    template: Json
    allow: frozenset[Allowed] = frozenset()
    images: tuple[str, ...] = ()
    max_resources: dict[str, str] = msgspec.field(default_factory=dict)


class JobClass(msgspec.Struct, frozen=True, kw_only=True):
    """A JobClass as the API server showed it: its spec as text of JSON, which may still be wrong."""

    name: str
    spec_json: str

    @property
    def hash(self) -> bytes:
        """Differs where the spec does."""
        return hashlib.sha256(self.spec_json.encode()).digest()


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    deletion_timestamp: str | None = None


def from_object(raw: Mapping[str, object]) -> JobClass | None:
    """A class from the JSON of an object, None where it is going away; InvalidInput where it is no Kubernetes object."""
    try:
        metadata = msgspec.convert(raw.get("metadata"), _Metadata)
    except msgspec.ValidationError as error:
        raise errors.InvalidInput("metadata", str(error)) from error
    if metadata.deletion_timestamp is not None:
        return None
    try:
        documents.check_text(raw.get("spec"), at="spec")
        text = msgspec.json.encode(raw.get("spec"), order="deterministic").decode()
    except errors.InvalidInput:
        text = "{}"  # which says of itself that it cannot be used
    return JobClass(name=metadata.name, spec_json=text)


def parse(document: object) -> ClassSpec:
    """Read a spec, or raise `InvalidInput` with the path of the field and one sentence."""
    checked = documents.check(document if isinstance(document, Mapping) else {}, TABLE)
    spec.check_template(checked["template"])
    found = msgspec.convert(checked, ClassSpec)
    forms.check(_texts(found))
    pods.render_template(found.template, namespace="any", job="any")  # which refuses what no pod can be made of
    _check_resources(pods.main_container(found.template))
    return found


def _check_resources(main: Json) -> None:
    usual = main.get("resources") or {}
    if not isinstance(usual, dict) or not all(isinstance(usual.get(kind) or {}, dict) for kind in _RESOURCES):
        raise errors.InvalidInput(
            "spec.template.spec.containers.resources", "must be an object with requests and limits"
        )


def template(named: ClassSpec, run: classrun.Run, *, namespace: str) -> Json:
    """The template of a job's pods; raises InvalidInput with what the class does not permit."""
    body = copy.deepcopy(named.template)
    main = pods.main_container(body)
    for field, sentence in _objections(named, run, main, namespace=namespace):
        raise errors.InvalidInput(f"spec.run.{field}", f"JobClass {run.class_name} {sentence}")
    given = {"image": run.image, "command": run.command, "args": run.args}
    main |= {name: value for name, value in given.items() if value is not None}
    if run.env:
        main["env"] = [*(main.get("env") or ()), *({"name": one.name, "value": one.value} for one in run.env)]
    usual = main.get("resources") or {}
    for kind, asked in _asked(run):
        if asked:
            usual[kind] = {**(usual.get(kind) or {}), **asked}
            main["resources"] = usual
    return body


def _asked(run: classrun.Run) -> Iterator[tuple[str, Mapping[str, str]]]:
    return zip(_RESOURCES, (run.resources.requests, run.resources.limits), strict=True)


def _texts(found: ClassSpec) -> Iterator[tuple[str, str | None, forms.Form]]:
    yield from ((f"namespaces[{number}]", name, forms.NAMESPACE) for number, name in enumerate(found.namespaces))
    yield from ((f"images[{number}]", image, forms.IMAGE) for number, image in enumerate(found.images))
    yield from ((f"maxResources.{name}", text, forms.QUANTITY) for name, text in found.max_resources.items())


def _objections(named: ClassSpec, run: classrun.Run, main: Json, *, namespace: str) -> Iterator[tuple[str, str]]:
    if namespace not in named.namespaces and EVERYBODY not in named.namespaces:
        yield "class", f"is not for jobs of namespace {namespace}"
    if run.image is not None and not any(_fits(run.image, pattern) for pattern in named.images):
        choice = f"choose one of {', '.join(named.images)}" if named.images else "leave it out"
        yield "image", f"does not let its users choose {run.image}: {choice}"
    for what, value in ((Allowed.COMMAND, run.command), (Allowed.ARGS, run.args), (Allowed.ENV, run.env or None)):
        if value is not None and what not in named.allow:
            yield what.lower(), "does not leave it to its users: leave it out"
    yield from (("env", sentence) for sentence in _taken(run, main))
    for kind, asked in _asked(run):
        yield from ((f"resources.{kind}", sentence) for sentence in _beyond(named, asked))
    for name, text in run.resources.limits.items():
        if quantities.value(text) == 0:
            yield (
                "resources.limits",
                f"cannot have 0 of {name} as its limit, which is none: write more, or leave it out",
            )


def _taken(run: classrun.Run, main: Json) -> Iterator[str]:
    """An entry of `env` comes before what `envFrom` takes, whose names are not known here."""
    if run.env and main.get("envFrom"):
        yield "takes variables by envFrom, which others could replace: leave it out"
    taken = {one["name"] for one in main.get("env") or ()}
    yield from (f"sets {one.name} itself: leave it out" for one in run.env if one.name in taken)


def _beyond(named: ClassSpec, asked: Mapping[str, str]) -> Iterator[str]:
    for name, text in asked.items():
        most = named.max_resources.get(name)
        if most is None:
            yield f"does not let its users choose {name}: leave it out"
        elif quantities.value(text) > quantities.value(most):
            yield f"lets its users have {most} of {name} at most, not {text}"


def _fits(image: str, pattern: str) -> bool:
    """Piece by piece, each at its first place: what a regular expression would try from each place anew."""
    first, *rest = pattern.split(_ANY_TEXT)
    if not rest:
        return image == first
    *middle, last = rest
    if not image.startswith(first):
        return False
    at = len(first)
    for piece in middle:
        found = image.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(image) - at >= len(last) and image.endswith(last)
