"""Manifests as kubectl reads and writes them: YAML's corners are not the same in every language.

What Go takes for a text, a date or a time of day (10:30) stays a text here, and a text that Go would take for a number
goes out in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import yaml

from clockhand import errors

_MAX_BYTES = 16 * 1024 * 1024
_MAX_NODES = 200_000
_QUOTED = re.compile(r"[yYnN]|[-+.]?[0-9][0-9a-fA-FxobXOBE_.:+-]*|[*@].*|[0-9].* .*", re.DOTALL)
_INTEGER = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|(?:0|[1-9][0-9_]*)|0x[0-9a-fA-F_]+)\Z")
_FLOAT = re.compile(
    r"(?:[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[-+]?\.[0-9][0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
)
_LEFT_OUT = (
    "tag:yaml.org,2002:timestamp",
    "tag:yaml.org,2002:value",
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
)


class _Loader(yaml.SafeLoader):
    """Safe, and without the readings that Go's YAML does not have."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_OUT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INTEGER, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


class _Dumper(yaml.SafeDumper):
    """Without anchors, with scripts as blocks."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else '"' if _QUOTED.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.SequenceNode:
    numbers = bool(items) and all(isinstance(item, int) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=numbers)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)


def read(data: bytes) -> list[Mapping[str, object]]:
    """The objects of a YAML or JSON text, those of lists one by one, or `InvalidInput` without a field."""
    return [one for index, document in enumerate(values(data), 1) for one in _objects(document, index)]


def values(data: bytes) -> list[object]:
    """The documents of a YAML or JSON text, whatever they are, or `InvalidInput` without a field."""
    try:
        if len(data) > _MAX_BYTES:
            raise _unreadable(f"is larger than {_MAX_BYTES // 1024 // 1024} MiB: split it")
        documents = list(yaml.load_all(data.decode("utf-8-sig"), Loader=_Loader))
    except UnicodeDecodeError:
        raise _unreadable("is not UTF-8 text: write YAML or JSON") from None
    except RecursionError:
        raise _unreadable("is nested too deeply: write it flatter") from None
    except (yaml.YAMLError, ValueError) as error:
        raise _unreadable(f"is not YAML: {_reason(error)}") from None
    _check_size(documents)
    return documents


def write(document: Mapping[str, object], comments: Sequence[str]) -> str:
    """One object as a YAML document of its own, under its comments."""
    head = "".join(f"# {comment}\n" for comment in comments)
    return f"---\n{head}{text(document)}"


def text(value: object) -> str:
    """A value as YAML."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=4_096, allow_unicode=True)


def _objects(document: object, index: int) -> Iterator[Mapping[str, object]]:
    if document is None:
        return
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise _unreadable(f"holds no Kubernetes object as document {index}: write apiVersion, kind, metadata and spec")
    items = document.get("items")
    if not document["kind"].endswith("List") or not isinstance(items, list):
        yield document
        return
    # the items of a typed list need not say what they are
    head = {"apiVersion": document.get("apiVersion"), "kind": document["kind"].removesuffix("List")}
    for item in items:
        yield from _objects({**head, **item} if isinstance(item, Mapping) and head["kind"] else item, index)


def _check_size(documents: list[object]) -> None:
    """References make a short text endless, and one that names itself is."""
    pending, seen = list(documents), 0
    while pending:
        seen += 1
        if seen > _MAX_NODES:
            raise _unreadable(f"holds more than {_MAX_NODES} values, references counted each time: split it")
        item = pending.pop()
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)


def _reason(error: Exception) -> str:
    """What the parser found and where, without its excerpt."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0]


def _unreadable(sentence: str) -> errors.InvalidInput:
    return errors.InvalidInput("", sentence)
