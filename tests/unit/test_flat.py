"""Deep JSON loses its depth and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clockhand.domain import flat

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


def cut(value: Any, limit: int) -> Any:
    """What `flatten` should leave, the obvious way."""
    if isinstance(value, dict):
        return {key: cut(inner, limit - 1) for key, inner in value.items()} if limit else None
    if isinstance(value, list):
        return [cut(inner, limit - 1) for inner in value] if limit else None
    return value


@settings(deadline=None)
@given(JSON, st.integers(1, 5), st.sampled_from([None, 1]))
def test_what_is_deeper_becomes_null(value: Any, limit: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).encode()
    assert flat.is_deep(text, limit) == (depth(value) > limit)
    assert json.loads(flat.flatten(text, limit)) == cut(value, limit)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[1,{"b":"]}","c":', '},"}"]')])
def test_as_deep_as_the_api_server_takes(opening: str, closing: str) -> None:
    text = f'{{"spec":{opening * 5_000}1{closing * 5_000},"z":2}}'.encode()
    found = json.loads(flat.flatten(text))
    assert found["z"] == 2
    assert depth(found) == flat.LIMIT


def test_shallow_text_is_untouched() -> None:
    text = json.dumps([{"a": [[{}]]}] * 1_000).encode()
    assert flat.flatten(text) is text
