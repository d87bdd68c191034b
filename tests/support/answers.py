"""What comes back from a server of ours, kept after its connection is gone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp


@dataclass(frozen=True)
class Answer:
    """What came back. Names of headers are alike in any case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


async def answer_of(response: aiohttp.ClientResponse) -> Answer:
    """Reads it to its end."""
    return Answer(response.status, response.headers, await response.text())
