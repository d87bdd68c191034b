"""What the process that stands in for a cluster is told by the one that starts it: in a file, as there are secrets in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from clockhand.standalone import home


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Where it serves, and for whom."""

    data_dir: str
    port: int
    health_port: int
    certificate: str
    key: str
    tokens: Mapping[str, str]
    """Bearer tokens, and whose they are."""
    database_url: str
    durable: bool


def write(path: Path, told: Told) -> None:
    """For `read`."""
    home.write(path, msgspec.json.encode(told).decode())


def read(path: Path) -> Told:
    """What `write` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Told)
