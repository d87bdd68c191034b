"""Custom resource definitions, built from tables of fields.

The schema refuses on apply whatever it can, with a sentence that names the field, there where it was typed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from clockhand.domain.table import Field, Kind, Table

GROUP = "clockhand.dev"
VERSION = "v1alpha1"
MAX_NAME = 63

Schema = dict[str, object]
Rule = dict[str, object]
Column = tuple[str, str, str, str]

INT64: Mapping[str, object] = {"type": "integer", "format": "int64"}
TIME: Mapping[str, object] = {"type": "string", "format": "date-time"}
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """What is one kind's own."""

    kind: str
    plural: str
    short_name: str
    text: str
    spec_text: str
    table: Table
    columns: Sequence[Column]
    wide_columns: Sequence[Column]
    status: Mapping[str, Schema] | None
    """Beside the conditions; None: objects of the kind have no status."""
    of_spec: Callable[[], list[Rule]]
    of_field: Callable[[Field], list[Rule]]
    restart_policy: str
    needed_of_containers: tuple[str, ...]
    namespaced: bool = True
    subresources: Mapping[str, Schema] = field(default_factory=dict)
    of_object: Sequence[Rule] = ()


def build(resource: Resource) -> Schema:
    """The definition as plain JSON values, in a stable order."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": [resource.short_name],
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(resource)],
        },
    }


def spec_schema(resource: Resource) -> Schema:
    """The schema of a spec alone."""
    return _Schemas(resource).of_spec()


def text(resource: Resource) -> str:
    """The definition as the YAML of a file in `crds/`."""
    body = yaml.dump(build(resource), Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return f"# Generated from the table of fields by `clockhand crds`; edit the table instead.\n{body}"


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: a definition is read by people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _version(resource: Resource) -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {**({} if resource.status is None else {"status": {}}), **resource.subresources},
        "additionalPrinterColumns": [
            *(_column(*column) for column in resource.columns),
            *({**_column(*column), "priority": 1} for column in resource.wide_columns),
        ],
        "schema": {"openAPIV3Schema": _root(resource)},
    }


def _column(name: str, kind: str, path: str, text: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, "description": text}


def _root(resource: Resource) -> Schema:
    return {
        "description": resource.text,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _Schemas(resource).of_spec(),
            **({} if resource.status is None else {"status": _status(resource.status)}),
        },
        _RULES: [
            {
                "rule": f"self.metadata.name.size() <= {MAX_NAME}",
                "message": f"metadata.name must be at most {MAX_NAME} characters",
            },
            *resource.of_object,
        ],
    }


def _status(fields: Mapping[str, Schema]) -> Schema:
    return {
        "description": "What Clockhand last saw; the history is in the runs.",
        "type": "object",
        "properties": {**fields, "conditions": _conditions()},
    }


class _Schemas:
    """The schemas of a resource's fields."""

    def __init__(self, resource: Resource) -> None:
        self._resource = resource
        self._table = resource.table

    def of_spec(self) -> Schema:
        schema = self._object(Field(path="", kind=Kind.OBJECT, text=self._resource.spec_text))
        if rules := self._resource.of_spec():
            schema[_RULES] = rules
        return schema

    def _of(self, row: Field) -> Schema:
        schema: Schema = {"description": row.text, **self._shape(row)}
        if row.default is not None:
            schema["default"] = self._default(row)
        if rules := self._resource.of_field(row):
            schema[_RULES] = rules
        return schema

    def _shape(self, row: Field) -> Schema:
        match row.kind:
            case Kind.OBJECT:
                return self._object(row)
            case Kind.ARRAY:
                return self._array(row)
            case Kind.MAP:
                return self._map(row)
            case Kind.RAW:
                return self._pod()
        return _SIMPLE[row.kind](row)

    def _default(self, row: Field) -> object:
        """An object's default holds those of its fields: rules see it before the server fills it in."""
        if row.kind is Kind.OBJECT:
            rows = self._table.children(row.path).values()
            return {child.name: self._default(child) for child in rows if child.default is not None}
        if isinstance(row.default, Mapping):
            return dict(row.default)
        if isinstance(row.default, tuple):
            return list(row.default)
        return str(row.default) if isinstance(row.default, str) else row.default

    def _object(self, row: Field) -> Schema:
        rows = self._table.children(row.path)
        schema: Schema = {"type": "object"}
        if required := [name for name, child in rows.items() if child.required]:
            schema["required"] = required
        schema["properties"] = {name: self._of(child) for name, child in rows.items()}
        return schema

    def _array(self, row: Field) -> Schema:
        return {
            "type": "array",
            **_limits(row, low="minItems", high="maxItems"),
            "x-kubernetes-list-type": "atomic",
            "items": self._of(self._table.item(row)),
        }

    def _map(self, row: Field) -> Schema:
        limits = _limits(row, low="minProperties", high="maxProperties")
        return {"type": "object", **limits, "additionalProperties": self._of(self._table.item(row))}

    def _pod(self) -> Schema:
        """A pod spec: kept whole, with just enough structure to refuse the mistakes that are made most."""
        text: Schema = {"type": "string", "minLength": 1}
        policy = self._resource.restart_policy
        container: Schema = {
            "type": "object",
            _PRESERVE: True,
            "required": list(self._resource.needed_of_containers),
            "properties": {"name": {**text, "maxLength": 63}, "image": {**text, "maxLength": 1024}},
        }
        return {
            "type": "object",
            _PRESERVE: True,
            "x-kubernetes-map-type": "atomic",
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "minItems": 1, "maxItems": 64, "items": container},
                "restartPolicy": {"type": "string", "enum": [policy], "default": policy},
            },
        }


def _string(row: Field) -> Schema:
    if row.enum:
        return {"type": "string", "enum": [str(name) for name in row.enum]}
    return {"type": "string", **_limits(row, low="minLength", high="maxLength")}


def _integer(row: Field) -> Schema:
    return {**INT64, **_limits(row, low="minimum", high="maximum")}


def _number(row: Field) -> Schema:
    return {"type": "number", **_limits(row, low="minimum", high="maximum")}


def _boolean(row: Field) -> Schema:
    return {"type": "boolean"}


def _labels(row: Field) -> Schema:
    return {
        "type": "object",
        **_limits(row, low="minProperties", high="maxProperties"),
        "additionalProperties": {"type": "string"},
    }


def _any(row: Field) -> Schema:
    return {_PRESERVE: True, "nullable": True}


def _limits(row: Field, *, low: str, high: str) -> Schema:
    return {name: bound for name, bound in ((low, row.low), (high, row.high)) if bound is not None}


_SIMPLE: Mapping[Kind, Callable[[Field], Schema]] = {
    Kind.STRING: _string,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.BOOLEAN: _boolean,
    Kind.LABELS: _labels,
    Kind.ANY: _any,
}


def _conditions() -> Schema:
    return {
        "description": "Ready and others.",
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status"],
            "properties": {
                "type": {"type": "string", "maxLength": 316},
                "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                "reason": {"type": "string", "maxLength": 1024},
                "message": {"type": "string", "maxLength": 32768},
                "observedGeneration": dict(INT64),
                "lastTransitionTime": dict(TIME),
            },
        },
    }
