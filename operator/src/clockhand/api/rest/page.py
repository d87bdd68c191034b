"""`/docs`: the OpenAPI document for people, as one page that needs nothing from elsewhere."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import Any

PATH = "/docs"
Json = Mapping[str, Any]
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
code, .path { font-family: ui-monospace, monospace; font-size: 0.92em; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
details { border: 1px solid #8886; border-radius: 6px; margin: 0.5rem 0; padding: 0.4rem 0.8rem; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0; }
td, th { text-align: left; vertical-align: top; padding: 0.25rem 0.8rem 0.25rem 0; border-top: 1px solid #8884; }
"""
_METHODS = ("get", "post", "put", "patch", "delete")


def render(document: Json) -> str:
    """The page."""
    title = html.escape(f"{document['info']['title']} {document['info']['version']}")
    return "".join(
        (
            f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
            f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>',
            f"<h1>{title}</h1><p>{html.escape(document['info']['description'])}</p>",
            '<p>The same for programs: <a href="/openapi.json">/openapi.json</a>.</p>',
            *_operations(document["paths"]),
            "<h2>Types</h2>",
            *(_named(name, schema) for name, schema in document["components"]["schemas"].items()),
            "</body></html>\n",
        )
    )


def _operations(paths: Json) -> Iterator[str]:
    by_tag: dict[str, list[str]] = {}
    for path, methods in paths.items():
        for method in _METHODS:
            if method in methods:
                by_tag.setdefault(methods[method]["tags"][0], []).append(_operation(method, path, methods[method]))
    for tag, operations in by_tag.items():
        yield f"<h2>{html.escape(tag.capitalize())}</h2>"
        yield from operations


def _operation(method: str, path: str, operation: Json) -> str:
    head = f'<span class="method">{method.upper()}</span><span class="path">{html.escape(path)}</span>'
    parts = [f"<p>{html.escape(operation['summary'])} {html.escape(operation['description'])}</p>"]
    if operation["parameters"]:
        rows = (
            _row(f"<code>{one['name']}</code> ({one['in']})", _type(one["schema"]), html.escape(one["description"]))
            for one in operation["parameters"]
        )
        parts.append(f"<table><tr><th>Parameter</th><th>Type</th><th></th></tr>{''.join(rows)}</table>")
    if "requestBody" in operation:
        parts.append(f"<p>Takes {_content(operation['requestBody'])}</p>")
    answers = (
        _row(status, html.escape(answer["description"]), _content(answer))
        for status, answer in operation["responses"].items()
    )
    parts.append(f"<table><tr><th>Answer</th><th></th><th></th></tr>{''.join(answers)}</table>")
    summary = f"{head} <span>{html.escape(operation['summary'])}</span>"
    return f'<details id="{operation["operationId"]}"><summary>{summary}</summary>{"".join(parts)}</details>'


def _content(part: Json) -> str:
    return ", ".join(
        f"{_type(one['schema'])} as <code>{media}</code>" for media, one in part.get("content", {}).items()
    )


def _named(name: str, schema: Json) -> str:
    about = f"<p>{html.escape(schema.get('description', ''))}</p>"
    return f'<details id="{name}"><summary><code>{name}</code></summary>{about}{_fields(schema) or _type(schema)}</details>'


def _fields(schema: Json) -> str:
    needed = schema.get("required", ())
    rows = (
        _row(f"<code>{html.escape(name)}</code>{' *' if name in needed else ''}", _type(one), _told(one))
        for name, one in schema.get("properties", {}).items()
    )
    body = "".join(rows)
    return f"<table><tr><th>Field</th><th>Type</th><th></th></tr>{body}</table>" if body else ""


def _told(schema: Json) -> str:
    """What a field means, and beneath it the fields of its own."""
    inner = _without_null(schema)
    words = html.escape(inner.get("description", schema.get("description", "")))
    bounds = [f"{name} {inner[key]}" for key, name in _BOUNDS.items() if key in inner]
    if inner.get("default") not in (None, {}, []) and not inner.get("properties"):
        bounds.append(f"by default {inner['default']}")
    said = f" <i>{html.escape(', '.join(bounds))}</i>" if bounds else ""
    return f"{words}{said}{_fields(inner)}"


_BOUNDS: Mapping[str, str] = {
    "minimum": "at least",
    "maximum": "at most",
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "minItems": "items at least",
    "maxItems": "items at most",
}


def _type(schema: Json) -> str:
    inner = _without_null(schema)
    if "$ref" in inner:
        name = inner["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "enum" in inner:
        return " or ".join(f"<code>{html.escape(str(one))}</code>" for one in inner["enum"])
    if inner.get("type") == "array":
        return f"list of {_type(inner.get('items', {}))}"
    if "anyOf" in inner:
        return " or ".join(_type(one) for one in inner["anyOf"])
    return html.escape(" ".join(filter(None, (inner.get("format"), inner.get("type", "any")))))


def _without_null(schema: Json) -> Json:
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    return choices[0] if len(choices) == 1 else schema


def _row(*cells: str) -> str:
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
