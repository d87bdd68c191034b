"""Decoded specs by their stored text. Most jobs of an installation share few distinct texts, so a small cache serves all."""

from __future__ import annotations

import functools

from clockhand.domain import spec


@functools.lru_cache(maxsize=4096)
def of(text: str) -> spec.JobSpec:
    """The spec stored as `text`; raises InvalidInput where this release cannot read it."""
    return spec.decode(text.encode())
