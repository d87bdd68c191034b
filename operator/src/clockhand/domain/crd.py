"""The custom resource definition, built from the table of fields.

The schema refuses on apply whatever it can, with a sentence that names the field, there where it was typed (`cel`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import yaml

from clockhand.domain import cel, fields

GROUP = "clockhand.dev"
VERSION = "v1alpha1"
KIND = "ScheduledJob"
PLURAL = "scheduledjobs"
MAX_NAME = 63

Schema = dict[str, object]
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_RULES = "x-kubernetes-validations"
_INT64: Schema = {"type": "integer", "format": "int64"}
_TIME: Schema = {"type": "string", "format": "date-time"}
_COLUMNS = (
    ("SCHEDULE", "string", ".spec.schedule", "When it falls due"),
    ("TIME ZONE", "string", ".spec.timeZone", "The zone of the schedule"),
    ("SUSPEND", "boolean", ".spec.suspend", "Whether it is suspended"),
    ("ACTIVE", "integer", ".status.active", "Live runs"),
    ("LAST", "date", ".status.lastScheduledTime", "Age of the newest slot that fell due"),
    ("NEXT", "string", ".status.nextRunTime", "When the next run starts"),
    ("AGE", "date", ".metadata.creationTimestamp", "Age of the object"),
)
_WIDE_COLUMNS = (
    ("EVERY", "string", ".spec.every", "Its interval, where it has one"),
    ("AT", "string", ".spec.at", "Its one instant, where it has one"),
)


def build() -> Schema:
    """The definition as plain JSON values, in a stable order."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": "scheduledjob",
                "shortNames": ["sjob"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def text() -> str:
    """The definition as the YAML of `crds/scheduledjob.yaml`."""
    body = yaml.dump(build(), Dumper=_PlainDumper, sort_keys=False, width=110, allow_unicode=True)
    return f"# Generated from the table of fields by `clockhand crds`; edit the table instead.\n{body}"


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: a definition is read by people."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            *(_column(*column) for column in _COLUMNS),
            *({**_column(*column), "priority": 1} for column in _WIDE_COLUMNS),
        ],
        "schema": {"openAPIV3Schema": _root()},
    }


def _column(name: str, kind: str, path: str, text: str) -> Schema:
    return {"name": name, "type": kind, "jsonPath": path, "description": text}


def _root() -> Schema:
    return {
        "description": "A job on a schedule: each slot makes one run, with a stable id and a history.",
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _spec(),
            "status": _status(),
        },
        _RULES: [
            {
                "rule": f"self.metadata.name.size() <= {MAX_NAME}",
                "message": f"metadata.name must be at most {MAX_NAME} characters",
            }
        ],
    }


def _spec() -> Schema:
    schema = _object(fields.Field(path="", kind=fields.Kind.OBJECT, text="What to run, and when."))
    schema[_RULES] = cel.of_spec()
    return schema


def _schema(row: fields.Field) -> Schema:
    schema: Schema = {"description": row.text, **_BUILDERS[row.kind](row)}
    if row.default is not None:
        schema["default"] = _default(row)
    if rules := cel.of_field(row):
        schema[_RULES] = rules
    return schema


def _default(row: fields.Field) -> object:
    """An object's default holds those of its fields: rules see it before the server fills it in."""
    if row.kind is fields.Kind.OBJECT:
        rows = fields.children(row.path).values()
        return {child.name: _default(child) for child in rows if child.default is not None}
    if isinstance(row.default, Mapping):
        return dict(row.default)
    if isinstance(row.default, tuple):
        return list(row.default)
    return str(row.default) if isinstance(row.default, str) else row.default


def _object(row: fields.Field) -> Schema:
    rows = fields.children(row.path)
    schema: Schema = {"type": "object"}
    if required := [name for name, child in rows.items() if child.required]:
        schema["required"] = required
    schema["properties"] = {name: _schema(child) for name, child in rows.items()}
    return schema


def _array(row: fields.Field) -> Schema:
    item = fields.by_path()[f"{row.path}[]"]
    return {
        "type": "array",
        **_limits(row, low="minItems", high="maxItems"),
        "x-kubernetes-list-type": "atomic",
        "items": _schema(item),
    }


def _string(row: fields.Field) -> Schema:
    if row.enum:
        return {"type": "string", "enum": [str(name) for name in row.enum]}
    return {"type": "string", **_limits(row, low="minLength", high="maxLength")}


def _integer(row: fields.Field) -> Schema:
    return {**_INT64, **_limits(row, low="minimum", high="maximum")}


def _number(row: fields.Field) -> Schema:
    return {"type": "number", **_limits(row, low="minimum", high="maximum")}


def _boolean(row: fields.Field) -> Schema:
    return {"type": "boolean"}


def _labels(row: fields.Field) -> Schema:
    return {
        "type": "object",
        **_limits(row, low="minProperties", high="maxProperties"),
        "additionalProperties": {"type": "string"},
    }


def _any(row: fields.Field) -> Schema:
    return {_PRESERVE: True, "nullable": True}


def _raw(row: fields.Field) -> Schema:
    """A pod spec: kept whole, with just enough structure to refuse the mistakes that are made most."""
    text: Schema = {"type": "string", "minLength": 1}
    container: Schema = {
        "type": "object",
        _PRESERVE: True,
        "required": ["name", "image"],
        "properties": {"name": {**text, "maxLength": 63}, "image": {**text, "maxLength": 1024}},
    }
    return {
        "type": "object",
        _PRESERVE: True,
        "x-kubernetes-map-type": "atomic",
        "required": ["containers"],
        "properties": {
            "containers": {"type": "array", "minItems": 1, "maxItems": 64, "items": container},
            "restartPolicy": {"type": "string", "enum": ["Never"], "default": "Never"},
        },
    }


def _limits(row: fields.Field, *, low: str, high: str) -> Schema:
    return {name: bound for name, bound in ((low, row.low), (high, row.high)) if bound is not None}


_BUILDERS: Mapping[fields.Kind, Callable[[fields.Field], Schema]] = {
    fields.Kind.STRING: _string,
    fields.Kind.INTEGER: _integer,
    fields.Kind.NUMBER: _number,
    fields.Kind.BOOLEAN: _boolean,
    fields.Kind.OBJECT: _object,
    fields.Kind.ARRAY: _array,
    fields.Kind.LABELS: _labels,
    fields.Kind.RAW: _raw,
    fields.Kind.ANY: _any,
}


def _status() -> Schema:
    return {
        "description": "What Clockhand last saw; the history is in the runs.",
        "type": "object",
        "properties": {
            "nextRunTime": {
                **_TIME,
                "description": "When the next run starts: the next slot, later by the jitter of the job.",
            },
            "lastScheduledTime": {**_TIME, "description": "The newest slot that fell due."},
            "lastSuccessfulTime": {**_TIME, "description": "When a run last succeeded."},
            "active": {**_INT64, "description": "Live runs."},
            "consecutiveFailures": {**_INT64, "description": "Dead runs since the last one that succeeded."},
            "observedGeneration": {**_INT64, "description": "The generation that the rest speaks of."},
            "conditions": _conditions(),
        },
    }


def _conditions() -> Schema:
    return {
        "description": "Ready, TemplateValid and others.",
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
                "observedGeneration": dict(_INT64),
                "lastTransitionTime": dict(_TIME),
            },
        },
    }
