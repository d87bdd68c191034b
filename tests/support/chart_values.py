"""What can be set in the chart, read from `values.yaml` and the comments in it: a schema and a README say the same.

A comment above a key says what the key means. Its last line may be `# @schema {...}`, JSON schema that the default does not
tell. `## ...` begins a section. A mapping whose own keys have comments is a group, every other value is taken as a whole.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "scheduler"
_SCHEMA = "@schema "
_INTRODUCTION = """\
# Clockhand by Helm

<!-- Generated from charts/scheduler/values.yaml by `make generate`: edit that. -->

For Helm 3 and 4 and Kubernetes 1.30 or newer. You need a PostgreSQL 15 or newer, and images of yours: see
[operations](../../docs/operations.md#install), which also tells how to upgrade and how to remove it.

```sh
kubectl create namespace clockhand-system
kubectl label namespace clockhand-system pod-security.kubernetes.io/enforce=restricted
kubectl -n clockhand-system create secret generic clockhand-database \\
  --from-literal=url='postgresql://clockhand:PASSWORD@HOST/clockhand?sslmode=verify-full'
helm install clockhand charts/scheduler --namespace clockhand-system --wait \\
  --set image.repository=REGISTRY/clockhand --set workerImage.repository=REGISTRY/clockhand-worker \\
  --set database.existingSecret=clockhand-database
helm test clockhand --namespace clockhand-system
```

To try it without a database of yours: `--set demoDatabase.enabled=true` in place of the Secret. A value that is not listed
here is refused.
"""
_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}


@dataclass(frozen=True)
class Value:
    """A key of the values. A group has `children`."""

    path: str
    default: object
    text: str
    schema: Mapping[str, Any]
    section: str = ""
    children: Sequence[Value] = field(default=())

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]


def current() -> Sequence[Value]:
    """Those of the chart."""
    return read((CHART / "values.yaml").read_text(encoding="utf-8"))


def read(text: str) -> Sequence[Value]:
    """The keys at the top, in their order."""
    lines = text.splitlines()
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    return list(_children(root, lines, ""))


def schema(values: Sequence[Value]) -> str:
    """`values.schema.json`: what a typing mistake in somebody's values is refused by."""
    body = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of Clockhand's chart",
        **_group(values),
    }
    body["properties"]["global"] = {"type": "object", "description": "Of a chart that this one is part of."}
    return json.dumps(body, indent=2, ensure_ascii=False) + "\n"


def readme(values: Sequence[Value]) -> str:
    """`README.md`: how to install, and a table for each section."""
    lines = [_INTRODUCTION]
    for section, found in itertools.groupby(_rows(values), key=lambda row: row[0]):
        lines += [f"## {section}", "", "| Value | Default | Meaning |", "|---|---|---|", *(row for _, row in found), ""]
    return "\n".join(lines)


def _rows(values: Sequence[Value]) -> Iterator[tuple[str, str]]:
    section = ""
    for value in values:
        section = value.section or section
        for leaf in _leaves(value):
            default = json.dumps(leaf.default, ensure_ascii=False)
            yield section, f"| `{leaf.path}` | `{default}` | {leaf.text} |"


def _leaves(value: Value) -> Iterator[Value]:
    if not value.children:
        yield value
    for child in value.children:
        yield from _leaves(child)


def _children(node: yaml.MappingNode, lines: Sequence[str], prefix: str) -> Iterator[Value]:
    for key, below in node.value:
        path = f"{prefix}{key.value}"
        text, given, section = _comment(lines, key.start_mark.line)
        children: Sequence[Value] = ()
        if isinstance(below, yaml.MappingNode) and _is_group(below, lines):
            children = list(_children(below, lines, f"{path}."))
        elif not text:
            raise LookupError(f"charts/scheduler/values.yaml: {path} has no comment")
        default = yaml.safe_load(yaml.serialize(below))
        yield Value(path, default, text, given, section, children)


def _is_group(node: yaml.MappingNode, lines: Sequence[str]) -> bool:
    """Whether its first key, or the first one in that, has a comment."""
    if node.flow_style or not node.value:
        return False
    key, below = node.value[0]
    return bool(_comment(lines, key.start_mark.line)[0]) or (
        isinstance(below, yaml.MappingNode) and _is_group(below, lines)
    )


def _comment(lines: Sequence[str], line: int) -> tuple[str, Mapping[str, Any], str]:
    """What stands above a line: the text, the schema, the section that begins there."""
    above: list[str] = []
    while line > 0 and (found := re.fullmatch(r"\s*# ?(.*)", lines[line - 1])) and not lines[line - 1].startswith("##"):
        above.insert(0, found[1])
        line -= 1
    while line > 0 and not lines[line - 1].strip():
        line -= 1
    section = lines[line - 1].removeprefix("## ") if line > 0 and lines[line - 1].startswith("## ") else ""
    given = yaml.safe_load(above.pop().removeprefix(_SCHEMA)) if above and above[-1].startswith(_SCHEMA) else {}
    return " ".join(above), given, section


def _group(values: Sequence[Value]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {value.name: _schema(value) for value in values},
    }


def _schema(value: Value) -> dict[str, Any]:
    described = {"description": value.text} if value.text else {}
    if value.children:
        return {**described, **_group(value.children)}
    if "$ref" in value.schema:
        return {**described, "allOf": [dict(value.schema)]}
    kind = {} if value.default is None else {"type": _TYPES[type(value.default)]}
    return {**described, **kind, **value.schema}
