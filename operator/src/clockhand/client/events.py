"""Server-sent events, as the HTML standard has them: what a stream of runs is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event, or an id alone, without data. `last_id` is the newest id by then: where to go on after a break."""

    kind: str
    data: str
    last_id: str | None


async def read(lines: AsyncIterator[bytes], *, last_id: str | None = None) -> AsyncIterator[Event]:
    """The events of a stream. What it broke off in is no event."""
    said: dict[str, list[str]] = {}
    async for line in lines:
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text:
            name, _, value = text.partition(":")
            said.setdefault(name, []).append(value.removeprefix(" "))
            continue
        last_id = said["id"][-1] if "id" in said else last_id
        if "data" in said or "id" in said:
            yield Event(said.get("event", ["message"])[-1], "\n".join(said.get("data", [])), last_id)
        said = {}
