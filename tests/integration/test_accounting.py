"""No slot is lost: whatever happens to a job, its runs and its skips add up to the slots of the rules that it had."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support import jobs, sighted, statements, told_time

from clockhand import errors
from clockhand.domain import sightings, spec, times
from clockhand.domain.spec import CatchUpPolicy as Policy
from clockhand.domain.states import SkipReason
from clockhand.engine import fire, pauses
from clockhand.store import database, runs

MINUTE = timedelta(minutes=1)
TICK = timedelta(milliseconds=1)
JOBS, STEPS = 120, 60


@pytest.fixture
async def world(db: database.Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[told_time.World]:
    async with told_time.world(db, monkeypatch) as made:
        yield made


@dataclasses.dataclass(slots=True)
class Life:
    """A job's object as it is, and every slot that it had: what the rows must account for."""

    seen: sightings.Sighting
    since: datetime
    slots: set[datetime] = dataclasses.field(default_factory=set)
    deleted: bool = False

    def close(self, now: datetime) -> None:
        """The spec holds until `now`: its slots so far, one after the other."""
        at = self._due().next_after(self.since) if self._due() else None
        while at is not None and at <= now:
            self.slots.add(at)
            at = self._due().next_after(at)
        self.since = max(now, self.since)

    def _due(self) -> Any:
        try:
            plan = spec.parse(self.seen.spec)
        except errors.InvalidInput:
            return None
        return plan.due(times.Origin(self.seen.uid, self.seen.created_at))


class Story:
    """What a seeded chance makes happen to a crowd of jobs."""

    def __init__(self, world: told_time.World, seed: int) -> None:
        self._world = world
        self._chance = random.Random(seed)
        self.lives: list[Life] = []

    async def tell(self) -> None:
        """Births, edits, suspensions, pauses, outages and ends of runs, until every job is deleted."""
        for step in range(STEPS):
            self._world.clock.pass_by(seconds=self._chance.choice([1, 20, 61, 300, 3_700, 20_000]))
            if step < STEPS // 2:
                await self._add()
            await self._change()
            if self._chance.random() < 0.6:
                await self._world.fire()
            await self._end_some_runs()
            await self._pause_and_mend()
            if self._chance.random() < 0.05:
                await self._lose_the_resource()
        await self._delete([life for life in self.lives if not life.deleted])

    async def _add(self) -> None:
        new = []
        for number in range(2 * JOBS // STEPS):
            created = self._world.clock.at - timedelta(seconds=self._chance.choice([0, 3, 500]))
            seen = sighted.job(f"job-{len(self.lives)}-{number}", created_at=created, **self._fields())
            new.append(Life(seen, created))
            at = spec.parse(seen.spec).run_at
            new[-1].since = created if at is None else min(created, at - TICK)
        self.lives += new
        await self._world.see(*(life.seen for life in new))

    async def _change(self) -> None:
        changed, gone = [], []
        for life in self.lives:
            roll = self._chance.random()
            if life.deleted or roll > 0.2:
                continue
            if roll < 0.02:
                gone.append(life)
                continue
            life.close(self._world.clock.at)
            life.seen = sighted.replaced(life.seen, generation=life.seen.generation + 1, spec=self._edited(life))
            changed.append(life.seen)
        await self._world.see(*changed)
        await self._delete(gone)

    def _edited(self, life: Life) -> dict[str, Any]:
        if self._chance.random() < 0.5:
            return {**life.seen.spec, "suspend": not life.seen.spec.get("suspend", False)}
        if self._chance.random() < 0.1:
            return sighted.spec(schedule="61 * * * *")
        return sighted.spec(**self._fields())

    async def _delete(self, gone: list[Life]) -> None:
        for life in gone:
            life.close(self._world.clock.at)
            life.deleted = True
        await self._world.see(*(sighted.deleted(life.seen) for life in gone))

    async def _lose_the_resource(self) -> None:
        await self._world.stop_all()
        self._world.clock.pass_by(seconds=self._chance.choice([1, 4_000]))
        await self._world.see(*(life.seen for life in self.lives if not life.deleted))

    async def _end_some_runs(self) -> None:
        ended = [life.seen.uid for life in self.lives if self._chance.random() < 0.15]
        async with self._world.db.transaction() as connection:
            await runs.cancel_waiting(connection, job_ids=ended, reason="why", now=self._world.clock.at)

    async def _pause_and_mend(self) -> None:
        """Some have died too often, others were run by hand and succeeded; both facts are stored with the outcomes."""
        dead = [life.seen.uid for life in self.lives if self._chance.random() < 0.1]
        mended = [life.seen.uid for life in self.lives if self._chance.random() < 0.1]
        async with self._world.db.transaction() as connection:
            await connection.execute("UPDATE job_status SET consecutive_failures = 2 WHERE job_id = ANY(%s)", (dead,))
            await connection.execute(
                "UPDATE job_status SET last_manual_success_at = %s WHERE job_id = ANY(%s)",
                (self._world.clock.at, mended),
            )
        await pauses.sweep(self._world.db, told_time.EVERYWHERE)

    def _fields(self) -> dict[str, Any]:
        pick = self._chance.choice
        now = self._world.clock.at
        ahead = [timedelta(seconds=seconds) for seconds in (-9_000, -30, 30, 4_000, 30_000)]
        when: dict[str, Any] = pick(
            [
                {"schedule": pick(["* * * * *", "*/7 * * * *", "5,50 * * * *", "0 2 * * *"])},
                {"schedules": ["*/20 * * * *", "*/30 * * * *"], "timeZone": "Europe/Berlin"},
                {"every": pick(["45s", "7m", "1h30m"])},
                {"at": (now + pick(ahead)).isoformat()},
            ]
        )
        if "at" not in when and pick([True, False]):
            when["endAt"] = (now + pick(ahead[2:])).isoformat()
        if "at" not in when and pick([True, False, False]):
            when["startAt"] = (now + pick(ahead[:2])).isoformat()
        return {
            "schedule": None,
            **when,
            "suspend": self._chance.random() < 0.1,
            "jitterSeconds": pick([0, 0, 30, 3_600]),
            "catchUp": {"policy": pick([*Policy]).value, "limit": pick([1, 7, 100])},
            "concurrencyPolicy": pick(["Allow", "Forbid", "Replace", "Queue"]),
            "queueLimit": pick([1, 1, 100]),
            "startingDeadlineSeconds": pick([None, None, 40]),
            "pauseAfterFailures": pick([None, None, None, 2]),
        }


@pytest.mark.parametrize("seed", range(3))
async def test_every_slot_of_every_rule_ran_or_was_skipped_for_a_reason(world: told_time.World, seed: int) -> None:
    story = Story(world, seed)
    await story.tell()
    assert len(story.lives) == JOBS
    reasons: Counter[str] = Counter()
    for life in story.lives:
        ran = await world.runs(life.seen)
        skipped = await world.skips(life.seen)
        assert len(ran) == len(set(ran))
        assert life.slots.issuperset(ran)
        for _, _, first, last in skipped:
            assert {first, last} <= life.slots - set(ran)
        assert len(ran) + sum(count for _, count, _, _ in skipped) == len(life.slots), life
        reasons.update(reason for reason, _, _, _ in skipped)
        reasons["ran"] += len(ran)
    # or it would have shown nothing
    assert {*SkipReason} <= set(reasons)
    assert reasons["ran"] > 100
    assert await world.fire() == 0


THREE_DAYS = 3 * 24 * 60


async def _down_for_three_days(world: told_time.World, plans: Mapping[str, spec.JobSpec]) -> None:
    """A thousand jobs of a minute in equal parts, which fired last three days ago."""
    async with world.db.transaction() as connection:
        for name, plan in plans.items():
            first = world.clock.at - (THREE_DAYS - 1) * MINUTE
            await jobs.make_jobs(connection, 1_000 // len(plans), job=plan, next_slot_at=first, name=name)


async def test_three_days_down_are_accounted_for_in_two_batches(
    world: told_time.World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = {
        "latest": jobs.plan(),
        "all": jobs.plan(catch_up=spec.CatchUp(policy=Policy.ALL, limit=10)),
        "none": jobs.plan(catch_up=spec.CatchUp(policy=Policy.NONE)),
        "deadline": jobs.plan(catch_up=spec.CatchUp(policy=Policy.ALL, limit=10), starting_deadline_seconds=90),
        "forbid": jobs.plan(
            catch_up=spec.CatchUp(policy=Policy.ALL, limit=10), concurrency_policy=spec.ConcurrencyPolicy.FORBID
        ),
    }
    await _down_for_three_days(world, plans)
    names = statements.named(monkeypatch)
    firer = fire.Fire(world.db)
    assert [await firer.run_once(told_time.EVERYWHERE) for _ in range(3)] == [fire.BATCH, 1_000 - fire.BATCH, 0]
    assert Counter(names)["firing.lock_due"] == 3
    assert all(Counter(names)[one] == 2 for one in ("firing.insert_runs", "firing.insert_skips", "firing.advance"))
    made = await world.query("SELECT split_part(job_name, '-', 1), count(*) FROM live_runs GROUP BY 1")
    assert dict(made) == {"latest": 200, "all": 2_000, "none": 200, "deadline": 400, "forbid": 200}
    found = await world.query(
        "SELECT split_part(job_name, '-', 1), reason::text, count(*), sum(count) FROM skips GROUP BY 1, 2"
    )
    assert {(name, reason): (rows, total) for name, reason, rows, total in found} == {
        ("latest", "CatchUp"): (200, 200 * (THREE_DAYS - 1)),
        ("all", "CatchUp"): (200, 200 * (THREE_DAYS - 10)),
        ("none", "CatchUp"): (200, 200 * (THREE_DAYS - 1)),
        ("deadline", "CatchUp"): (200, 200 * (THREE_DAYS - 10)),
        ("deadline", "Deadline"): (200, 200 * 8),
        ("forbid", "CatchUp"): (200, 200 * (THREE_DAYS - 10)),
        ("forbid", "Forbid"): (200, 200 * 9),
    }
    # of several missed slots the oldest goes first, and each of the others waits for the one before
    states = await world.query("SELECT state::text, count(*) FROM live_runs GROUP BY 1")
    assert dict(states) == {"Queued": 1_000, "Blocked": 200 * 9 + 200}
    first = await world.query(
        "SELECT min(scheduled_at) = min(scheduled_at) FILTER (WHERE state = 'Queued') FROM live_runs GROUP BY job_id"
    )
    assert first == [(True,)] * 1_000
    world.clock.pass_by(minutes=1)
    assert await world.fire() == 1_000, "and every job is running again"
    on_time = "SELECT count(DISTINCT job_id) FROM live_runs WHERE scheduled_at = %s"
    assert await world.query(on_time, world.clock.at) == [(800,)], "but for those whose live run forbids it"
    assert await world.query("SELECT count(*) FROM jobs WHERE next_run_at = %s", world.clock.at + MINUTE) == [(1_000,)]


@pytest.mark.parametrize("how", ["fire", "edit"])
async def test_what_a_crowd_catches_up_is_made_in_small_steps(
    world: told_time.World, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """500 jobs with a thousand missed slots each are half a million runs: no statement and no transaction lasts as long."""
    monkeypatch.setattr(fire, "MOST_RUNS", 100)
    names = statements.named(monkeypatch)
    when: dict[str, Any] = {"schedule": sighted.EVERY_MINUTE, "catchUp": {"policy": "All", "limit": 30}}
    seen = [sighted.job(f"job-{number}", created_at=world.clock.at, **when) for number in range(10)]
    await world.see(*seen)
    world.clock.pass_by(hours=1)
    if how == "fire":
        firer = fire.Fire(world.db)
        assert [await firer.run_once(told_time.EVERYWHERE) for _ in range(4)] == [10, 6, 2, 0]
    else:
        await world.see(*(sighted.edited(one, **when, priority=1) for one in seen))
    assert Counter(names)["firing.insert_runs"] == 3
    for one in seen:
        assert len(await world.runs(one)) == 30
        assert [(why, count) for why, count, _, _ in await world.skips(one)] == [("CatchUp", 30)]
    assert await world.fire() == 0
