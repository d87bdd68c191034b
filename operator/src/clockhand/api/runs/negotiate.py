"""Which form of an answer a client asked for: `Accept` carries kind, group and version as parameters."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from clockhand.api.runs import status

DISCOVERY_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_JSON_RANGES = frozenset({"application/json", "application/*", "*/*"})


class Form(enum.Enum):
    """How runs are shown."""

    OBJECT = "object"
    TABLE = "table"
    METADATA = "metadata"


class Include(enum.StrEnum):
    """What a row of a table carries beside its cells."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


@dataclass(frozen=True, slots=True)
class Shape:
    """A form with what belongs to it; hashable, so that watchers of one shape share an encoding."""

    form: Form
    version: str = "v1"
    include: Include = Include.METADATA


def shape_of(accept: str, include: str | None) -> Shape:
    """The first form in `accept` that can be given; 406 where there is none."""
    wanted = _include(include)
    for media, parameters in _ranges(accept):
        form = _form(parameters)
        if media in _JSON_RANGES and form is not None:
            return Shape(form, parameters.get("v", "v1"), wanted)
    raise status.Failure(406, "NotAcceptable", "only JSON, also as Table or PartialObjectMetadata, can be served")


def wants_discovery_document(accept: str) -> bool:
    """Whether the aggregator asks for everything in one document."""
    return any(
        parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("v") == "v2"
        for _, parameters in _ranges(accept)
    )


def _include(text: str | None) -> Include:
    try:
        return Include(text) if text else Include.METADATA
    except ValueError:
        raise status.bad_request(f"includeObject: {text!r} is none of {', '.join(Include)}") from None


def _form(parameters: Mapping[str, str]) -> Form | None:
    kind = parameters.get("as")
    if kind is None:
        return Form.OBJECT
    if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
        return None
    if kind == "Table":
        return Form.TABLE
    return Form.METADATA if kind in ("PartialObjectMetadata", "PartialObjectMetadataList") else None


def _ranges(accept: str) -> Iterator[tuple[str, dict[str, str]]]:
    for part in (accept or "*/*").split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        pairs = (piece.partition("=") for piece in rest)
        yield media.lower() or "*/*", {key.strip(): value.strip().strip('"') for key, _, value in pairs}
