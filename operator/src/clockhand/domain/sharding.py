"""Which replica should hold which shard.

Rendezvous (highest random weight) hashing over the live replicas: every replica computes the same plan from the same
list, nobody leads, and a replica that comes or goes moves only its own share.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Collection

from clockhand.domain import ids


class Role(enum.StrEnum):
    """What a process is there for, and so which of the shards it shares with its like."""

    OPERATOR = "operator"
    API = "api"

    @property
    def shards(self) -> range:
        return ids.POD_SHARDS if self is Role.OPERATOR else ids.POOL_SHARDS


def preferred(shards: Collection[int], replicas: Collection[str], *, me: str) -> frozenset[int]:
    """The shards that `me` should hold, given all live `replicas`."""
    return frozenset(shard for shard in shards if winner(shard, replicas) == me)


def winner(shard: int, replicas: Collection[str]) -> str | None:
    """The replica that should hold `shard`, None without replicas."""
    return max(replicas, key=lambda replica: _weight(shard, replica), default=None)


def _weight(shard: int, replica: str) -> tuple[bytes, str]:
    return hashlib.blake2b(f"{shard}/{replica}".encode(), digest_size=8).digest(), replica
