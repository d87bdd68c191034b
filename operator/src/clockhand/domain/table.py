"""Tables of fields: what a spec may hold, said once.

The schema of a custom resource, the parser, the defaults of the parsed values and the documentation come from the
resource's table, so that a field cannot mean one thing on apply and another in the engine.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

T = TypeVar("T")


class Kind(enum.StrEnum):
    """What a value is in JSON."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    OBJECT = "object"
    ARRAY = "array"
    MAP = "map"  # an object whose keys are the user's
    LABELS = "labels"  # a map of strings
    ANY = "any"
    RAW = "raw"  # an object kept as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One row. `low` and `high` bound a number, the length of a string or the number of items.

    The row of an item of a list, or of a value of a map, has the path of the whole with `[]` behind it.
    """

    path: str
    kind: Kind
    text: str
    default: object = None
    low: float | None = None
    high: float | None = None
    enum: tuple[str, ...] = ()
    required: bool = False
    beyond: str = ""  # what to write instead of more than `high`

    @property
    def name(self) -> str:
        return self.path.removesuffix("[]").rpartition(".")[2]


class Table:
    """The rows of one spec, in the order in which they are shown."""

    def __init__(self, rows: Sequence[Field]) -> None:
        self._rows = tuple(rows)
        self.by_path: Mapping[str, Field] = MappingProxyType({row.path: row for row in rows})
        parents: dict[str, dict[str, Field]] = {}
        for row in rows:
            if not row.path.endswith("[]"):
                parents.setdefault(row.path.rpartition(".")[0], {})[row.name] = row
        self._children = parents

    def __iter__(self) -> Iterator[Field]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def children(self, path: str) -> Mapping[str, Field]:
        """The fields directly under an object, keyed by name; the path "" is the spec itself."""
        return MappingProxyType(self._children.get(path, {}))

    def item(self, row: Field) -> Field:
        """The row of an item of a list, or of a value of a map."""
        return self.by_path[f"{row.path}[]"]

    def default(self, path: str, kind: type[T]) -> T:
        """The default of a field, as the type that its reader expects."""
        value = self.by_path[path].default
        if not isinstance(value, kind):
            raise TypeError(f"the default of {path} is no {kind.__name__}")
        return value


def string(path: str, text: str, *, high: int, default: str | None = None) -> Field:
    """A row of a string that is not empty."""
    return Field(path=path, kind=Kind.STRING, text=text, low=1, high=high, default=default)


def integer(path: str, text: str, *, low: int, high: int, default: int | None = None) -> Field:
    """A row of a whole number."""
    return Field(path=path, kind=Kind.INTEGER, text=text, low=low, high=high, default=default)


def choice(path: str, text: str, *, values: type[enum.StrEnum], default: str | None) -> Field:
    """A row of one word out of several."""
    names = tuple(value.value for value in values)
    return Field(path=path, kind=Kind.STRING, text=text, enum=names, default=default)


def nested(path: str, text: str) -> Field:
    """A row of an object whose fields all have defaults."""
    return Field(path=path, kind=Kind.OBJECT, text=text, default=MappingProxyType({}))


def template(text: str, *, of: str, spec: str, required: bool = False) -> tuple[Field, ...]:
    """The rows of a pod template; `of` is whose labels they are, `spec` what is said of the PodSpec."""
    return (
        Field(path="template", kind=Kind.OBJECT, text=text, required=required),
        Field(path="template.metadata", kind=Kind.OBJECT, text=f"Labels and annotations of {of}."),
        Field(path="template.metadata.labels", kind=Kind.LABELS, text=f"Labels of {of}.", high=64),
        Field(path="template.metadata.annotations", kind=Kind.LABELS, text=f"Annotations of {of}.", high=64),
        Field(path="template.spec", kind=Kind.RAW, text=spec, required=True),
    )
