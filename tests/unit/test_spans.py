"""Spans of time read as kubectl writes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from clockhand.domain import spans


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (5, "5s"),
        (119, "119s"),
        (150, "2m30s"),
        (600, "10m"),
        (10_800, "3h"),
        (12_660, "3h31m"),
        (90_000, "25h"),
        (259_200, "3d"),
    ],
)
def test_ages_read_like_kubectls(seconds: float, text: str) -> None:
    assert spans.human(timedelta(seconds=seconds)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (0.35, "0.3s"), (9.94, "9.9s"), (9.97, "9s"), (42, "42s"), (125, "2m5s"), (-3, "0.0s")],
)
def test_short_spans_have_tenths(seconds: float, text: str) -> None:
    assert spans.short(timedelta(seconds=seconds)) == text
