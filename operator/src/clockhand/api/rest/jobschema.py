"""The schemas of a job as it is sent, patched and shown: from the table of fields, as the schema for kubectl is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clockhand.domain import crd, definition, drafts, fields, resources

Json = dict[str, Any]
_PART = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Json = {
    "type": "string",
    "description": "Unique among the jobs of an owner; made from the id where it is left out.",
    "pattern": f"^{_PART}([.]{_PART})*$",
    "maxLength": drafts.MAX_NAME,
}
_LABELS: Json = {
    "type": "object",
    "description": "Which runs have as well, for whoever looks for them.",
    "maxProperties": drafts.MAX_LABELS,
    "additionalProperties": {"type": "string", "maxLength": 63},
}
_ALIASES = ("runAt", "run_at")
_OPEN = "x-kubernetes-preserve-unknown-fields"


def of(shown: Json) -> Mapping[str, Json]:
    """By their names. `shown` is the schema of the type, from which what the server adds is taken."""
    spec = _plain(definition.spec_schema(crd.RESOURCE))["properties"]
    server = {name: {"readOnly": True, **shown["properties"][name]} for name in sorted(resources.SERVER_FIELDS)}
    own = {"name": _NAME, "labels": _LABELS}
    at = {**spec["at"], "description": "The same as at."}
    sent = {**own, **spec, **dict.fromkeys(_ALIASES, at)}
    passed_over = {name: {"readOnly": True} for name in server}
    return {
        "Job": {
            "type": "object",
            "description": "A job as it is read. In lists payload and template are left out.",
            "required": shown["required"],
            "properties": {**server, **own, **spec},
        },
        "JobDocument": {
            "type": "object",
            "description": "A job as it is sent. What was read may be sent back: the server's fields are passed over.",
            "allOf": [_exactly_one(*fields.ONE_OF_WHEN, *_ALIASES), _exactly_one(*fields.ONE_OF_WHAT)],
            "additionalProperties": False,
            "properties": {**sent, **passed_over},
        },
        "JobPatch": {
            "type": "object",
            "description": "A merge patch (RFC 7396) of a job: null takes a field back to its default.",
            "additionalProperties": False,
            "properties": {**{name: _nullable(schema) for name, schema in sent.items()}, **passed_over},
        },
    }


def _exactly_one(*names: str) -> Json:
    return {"oneOf": [{"required": [name]} for name in names]}


def _plain(schema: Any) -> Any:
    """A schema of the cluster's, without what only an API server understands; no object has fields beside its own."""
    if isinstance(schema, list):
        return [_plain(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    plain = {name: _plain(part) for name, part in schema.items() if not name.startswith("x-kubernetes-")}
    plain.pop("nullable", None)
    if "properties" in schema and not schema.get(_OPEN):
        plain["additionalProperties"] = False
    return plain


def _nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]} if "type" in schema else schema
