"""Runs that came by a message: whoever presents the token first has the attempt, and everybody else drops the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from clockhand.domain import protocol
from clockhand.engine import verdicts
from clockhand.engine.pools import intake, messages
from clockhand.store import assigned, database, leases, pools

BATCH = 100
_Begun = Mapping[verdicts.Attempt, assigned.Assigned]


class Starts:
    """Stores starts with `step`, those of many workers at a time."""

    def __init__(self, db: database.Database) -> None:
        self._db = db
        self._intake: intake.Intake[leases.Beat, _Begun] = intake.Intake(self._store, most=BATCH)
        self.step = self._intake.step
        self.close = self._intake.close

    async def start(self, settings: pools.Settings, request: protocol.StartRequest) -> protocol.StartAnswer:
        """The runs that are this worker's now, or were already."""
        beat = messages.beat_of(settings, request.worker, request.held)
        [begun] = await self._intake.submit([beat])
        named = list(zip(request.held, beat.held, strict=True))
        return protocol.StartAnswer(
            runs=tuple(messages.run_of(begun[attempt]) for attempt in dict.fromkeys(beat.held) if attempt in begun),
            refused=tuple(one for one, attempt in named if attempt not in begun),
            lease_seconds=settings.lease_seconds,
            heartbeat_seconds=settings.heartbeat_seconds,
        )

    async def _store(self, beats: Sequence[leases.Beat]) -> Sequence[_Begun]:
        begun: dict[tuple[str, str | None], dict[verdicts.Attempt, assigned.Assigned]] = {}
        async with self._db.transaction() as connection:
            now = await database.now(connection)
            for pool, of_pool in messages.by_pool(beats).items():
                for run in await leases.start(connection, of_pool, now=now):
                    begun.setdefault((pool, run.worker), {})[(run.run_id, run.token)] = run
        return [begun.get((beat.pool, beat.worker), {}) for beat in beats]
