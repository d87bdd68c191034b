"""What Kubernetes publishes of its own kinds, as far as the small API server has them: written by
`python -m tests.support.kube_definitions` from the modules of which the test clusters are built.

`definitions.json` holds the schemas, with descriptions cut to their first sentence. `wire.json` holds the numbers of fields
in protobuf, in which kubectl sends some objects: by message and number the name in JSON (empty: the fields of the value
stand in the object itself), the type, and whether it is one value, many or a map.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from tests.e2e.cluster import binaries

from clockhand.standalone.kube import openapi

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "operator/src/clockhand/standalone/kube"
KINDS = {
    "api__v1": (
        "Pod",
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Namespace",
        "Node",
        "Event",
        "Service",
        "TokenRequest",
        "DeleteOptions",
    ),
    "apis__apps__v1": ("Deployment", "ReplicaSet"),
    "apis__policy__v1": ("PodDisruptionBudget",),
    "apis__coordination.k8s.io__v1": ("Lease",),
    "apis__authentication.k8s.io__v1": ("TokenReview", "SelfSubjectReview"),
    "apis__authorization.k8s.io__v1": ("SubjectAccessReview", "SelfSubjectAccessReview"),
    "apis__apiextensions.k8s.io__v1": ("CustomResourceDefinition",),
    "apis__apiregistration.k8s.io__v1": ("APIService",),
}
PROTOCOLS = (
    *(
        ("k8s.io/api", f"{group}/v1")
        for group in ("core", "apps", "policy", "coordination", "authentication", "authorization")
    ),
    *(("k8s.io/apimachinery", f"pkg/{part}") for part in ("apis/meta/v1", "api/resource", "runtime", "util/intstr")),
)
_MODES = {"optional": "one", "repeated": "many", "map<string,": "map"}
_SCALARS = frozenset({"bool", "bytes", "double", "int32", "int64", "string"})
_KEPT = frozenset(
    {
        "$ref", "additionalProperties", "allOf", "default", "description", "enum", "format", "items", "oneOf", "properties",
        "required", "type", "x-kubernetes-group-version-kind", "x-kubernetes-int-or-string", "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy", "x-kubernetes-preserve-unknown-fields",
    }
)  # fmt: skip
Json = dict[str, Any]


def folder_of(module: str) -> Path:
    """Where the sources of a module of the cluster's build lie."""
    kube = next(one for one in binaries.MODULES if one.name == "kube")
    command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
    return Path(subprocess.run(command, cwd=kube.folder, check=True, capture_output=True, text=True).stdout.strip())


def collected() -> dict[str, Json]:
    """The definitions of our kinds and of all that they refer to."""
    found: dict[str, Json] = {}
    documents = folder_of("k8s.io/kubernetes") / "api/openapi-spec/v3"
    for document, kinds in KINDS.items():
        schemas = json.loads((documents / f"{document}_openapi.json").read_text())["components"]["schemas"]
        waiting = [name for name, schema in schemas.items() if _is_one_of(schema, kinds)]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = _cut(schemas[name], is_schema=True)
                waiting += openapi.references(schemas[name])
    return dict(sorted(found.items()))


def _is_one_of(schema: Json, kinds: tuple[str, ...]) -> bool:
    return any(one["kind"] in kinds for one in schema.get("x-kubernetes-group-version-kind", ())) and (
        "apiVersion" in schema.get("properties", {})
    )


def _cut(value: Any, *, is_schema: bool) -> Any:
    if isinstance(value, list):
        return [_cut(one, is_schema=is_schema) for one in value]
    if not isinstance(value, dict):
        return value
    kept: Json = {}
    for key, inner in value.items():
        if is_schema and key not in _KEPT:
            continue
        if is_schema and key == "description":
            kept[key] = re.split(r"(?<=[a-z)`\"]\.)\s", inner.strip(), maxsplit=1)[0]
        elif is_schema and key in ("default", "enum", "required", "x-kubernetes-group-version-kind"):
            kept[key] = inner
        else:
            kept[key] = _cut(inner, is_schema=not (is_schema and key == "properties"))
    return kept


def wire(definitions: dict[str, Json]) -> dict[str, Json]:
    """The messages of our kinds, and all that they refer to."""
    messages: dict[str, list[tuple[str, str, str, int]]] = {}
    for module, path in PROTOCOLS:
        messages.update(_messages(folder_of(module) / path / "generated.proto", f"{module}/{path}".replace("/", ".")))
    properties = {_message(name): schema.get("properties", {}) for name, schema in definitions.items()}
    found: dict[str, Json] = {}
    waiting = [name for name, own in properties.items() if "apiVersion" in own and name in messages]
    while waiting:
        name = waiting.pop()
        if name not in found:
            fields = messages[name]
            found[name] = {
                str(number): ["" if _is_inline(field, kind, properties.get(name)) else field, kind, mode]
                for field, kind, mode, number in fields
            }
            waiting += [kind for _, kind, _, _ in fields if kind in messages]
    return dict(sorted(found.items()))


def _message(definition: str) -> str:
    """`io.k8s.api.core.v1.Pod` is `k8s.io.api.core.v1.Pod` in protobuf."""
    return f"k8s.io.{definition.removeprefix('io.k8s.')}"


def _is_inline(field: str, kind: str, properties: Json | None) -> bool:
    return "." in kind and properties is not None and field not in properties


def _messages(path: Path, package: str) -> Iterator[tuple[str, list[tuple[str, str, str, int]]]]:
    text = re.sub(r"//.*", "", path.read_text())
    for name, body in re.findall(r"^message (\w+) \{(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"(optional|repeated|map<string,) *\.?([\w.]+)>? (\w+) = (\d+);", body)
        yield (
            f"{package}.{name}",
            [(field, _type(kind, package), _MODES[label], int(number)) for label, kind, field, number in fields],
        )


def _type(kind: str, package: str) -> str:
    return kind if "." in kind or kind in _SCALARS else f"{package}.{kind}"


if __name__ == "__main__":
    published = collected()
    for file, content in (("definitions.json", published), ("wire.json", wire(published))):
        (TARGET / file).write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
        click.echo(f"wrote {(TARGET / file).relative_to(ROOT)}")
