"""Signs of life: workers renew the leases of what they have, and learn what has become of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import timedelta

from clockhand.domain import protocol
from clockhand.domain.protocol import Standing
from clockhand.engine import verdicts
from clockhand.engine.pools import intake, messages
from clockhand.store import assigned, database, leases, pools

BATCH = 100
_LATE_SECONDS = 5.0
"""By then the answer to a claim has reached its worker, or is lost; with a short lease there is less time to find out."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Renewed:
    """What a worker still has of what it listed, with the reason where it is to stop; and what it was given besides."""

    held: Mapping[verdicts.Attempt, str | None]
    unlisted: Sequence[assigned.Assigned]


class Heartbeats:
    """Stores heartbeats with `step`, those of many workers at a time."""

    def __init__(self, db: database.Database) -> None:
        self._db = db
        self._intake: intake.Intake[leases.Beat, _Renewed] = intake.Intake(self._store, most=BATCH)
        self.step = self._intake.step
        self.close = self._intake.close

    async def renew(self, settings: pools.Settings, request: protocol.HeartbeatRequest) -> protocol.HeartbeatAnswer:
        """Renews what the worker lists; returns what has become of each, and what it was given and does not list."""
        [renewed] = await self._intake.submit([messages.beat_of(settings, request.worker, request.held)])
        return protocol.HeartbeatAnswer(
            held=tuple(_renewed(one, renewed.held) for one in request.held),
            runs=tuple(map(messages.run_of, renewed.unlisted)),
            lease_seconds=settings.lease_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
        )

    async def _store(self, beats: Sequence[leases.Beat]) -> Sequence[_Renewed]:
        again: dict[tuple[str, str | None], list[assigned.Assigned]] = {}
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            kept = await leases.renew(connection, beats, now=now)
            for pool, of_pool in messages.by_pool(beats).items():
                late = timedelta(seconds=min(_LATE_SECONDS, of_pool[0].lease / 3))
                for run in await leases.unlisted(connection, of_pool, now=now, claimed_before=now - late):
                    again.setdefault((pool, run.worker), []).append(run)
        held: dict[tuple[str, str], dict[verdicts.Attempt, str | None]] = {}
        for row in kept:
            held.setdefault((row.pool, row.worker), {})[(row.run_id, row.token)] = row.stop_reason
        return [_Renewed(held.get(whose, {}), again.get(whose, ())) for whose in ((b.pool, b.worker) for b in beats)]


def _renewed(one: protocol.Held, held: Mapping[verdicts.Attempt, str | None]) -> protocol.Renewed:
    attempt = one.run_id, messages.read_token(one.token)
    if attempt not in held:
        return protocol.Renewed(run_id=one.run_id, token=one.token, standing=Standing.LOST)
    reason = held[attempt]
    standing = Standing.HELD if reason is None else Standing.STOP
    return protocol.Renewed(run_id=one.run_id, token=one.token, standing=standing, reason=reason)
