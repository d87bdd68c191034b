"""How deep a body is nested, and what it costs to find out."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clockhand.api import bodies, problems

TEXTS = st.text(alphabet='[]{}"\\ab,', max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=20,
)
MOST_FOR_A_BYTE = 8


def depth(value: Any) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(min_value=bodies.MAX_DEPTH - 4, max_value=bodies.MAX_DEPTH))
def test_the_depth_is_that_of_the_value(value: Any, around: int) -> None:
    whole = [[]] * bodies.MAX_DEPTH + [value]
    for _ in range(around):
        whole = [whole]
    is_deep = depth(whole) > bodies.MAX_DEPTH
    with pytest.raises(problems.Problem) if is_deep else contextlib.nullcontext():
        bodies.check_depth(json.dumps(whole).encode())


@pytest.mark.parametrize("text", [r"\n", r"\"", r"\\", "[", '"],["', "],["])
def test_what_a_large_body_holds_costs_a_bound_for_each_byte(text: str) -> None:
    body = b"[" + b"[]," * bodies.MAX_DEPTH + b'["' + text.encode() * (1 << 18) + b'"]]'
    tracemalloc.start()
    try:
        bodies.check_depth(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_FOR_A_BYTE * len(body)
