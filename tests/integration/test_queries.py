"""Every named query fits the schema, and the hot ones read no more than their batch, at a million rows."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.support import crowd, jobs, plans, postgres, rested

from clockhand import errors
from clockhand.admin.doctor import patient
from clockhand.api.rest import pages
from clockhand.domain import firing, ids, resources, sharding, states
from clockhand.domain import limits as limits_domain
from clockhand.domain.states import RunState as S
from clockhand.engine import fire
from clockhand.engine.jobs import asking, begins, creating
from clockhand.store import answers as answer_rows
from clockhand.store import (
    audits,
    backfills,
    changes,
    classes,
    database,
    doctor,
    expiry,
    groups,
    kafka,
    leases,
    limits,
    listing,
    mirroring,
    pauses,
    pools,
    pruning,
    queries,
    redrives,
    rezoning,
    runs,
    shards,
    status,
    survey,
    workerpools,
)
from clockhand.store import firing as fire_rows
from clockhand.store import jobs as job_rows

BATCH = 200
AHEAD = timedelta(minutes=1)
BIG = frozenset(
    {"jobs", "job_specs", "job_status", "live_runs", "run_history", "attempts", "skips", "run_changes", "backfills"}
)
PROBES = 2 * ids.SHARDS
"""A statement that goes through the shards may read a row or two of each beside its batch."""
POD = uuid.UUID(int=1)
TYPES: Mapping[str, str] = {
    "now": "timestamptz", "before": "timestamptz", "written_before": "timestamptz", "lease": "float8", "limit": "int",
    "batch": "int", "rows": "int", "take": "int", "scan": "int", "after": "bigint", "run_id": "uuid", "job_id": "uuid",
    "scheduled_at": "timestamptz", "priority": "int", "run_timeout": "int", "pending_timeout": "int",
    "attempt_timeout": "int", "state": "text", "states": "text[]", "reason": "text", "urgent_only": "boolean",
    "job_ids": "uuid[]", "run_ids": "uuid[]", "spec_ids": "bigint[]", "shards": "smallint[]", "replica": "text",
    "owner": "text", "name": "text", "by": "int", "equal": "jsonb", "within": "jsonb", "outside": "jsonb",
    "present": "text[]", "absent": "text[]", "oldest": "timestamptz", "newest": "timestamptz", "asof": "timestamptz",
    "floor": "uuid", "before_at": "timestamptz", "before_id": "bigint", "jobs": "uuid[]", "from_at": "timestamptz",
    "to_at": "timestamptz", "skip_id": "bigint", "claimed_before": "timestamptz", "pool": "text", "workers": "text[]",
    "tables": "text[]",
}  # fmt: skip
OTHERS: Mapping[tuple[str, str], str] = {
    ("duties", "lease"): "interval",
    ("listing", "before"): "uuid",
    ("runs", "after"): "uuid",
    ("installation", "after"): "uuid",
    ("rezoning", "after"): "uuid",
    ("redrives", "after"): "uuid",
    ("redrives", "job_name"): "text",
    ("runs", "states"): "run_state[]",
    ("firing", "states"): "run_state[]",
    ("firing", "since"): "timestamptz",
    ("firing", "first"): "uuid[]",
    ("firing", "few"): "int",
    ("firing", "most"): "bigint",
    ("doctor", "after"): "timestamptz",
}


@pytest.mark.parametrize("name", sorted(queries.all_queries()))
def test_every_query_can_be_prepared(server: postgres.PostgresServer, template_copy: str, name: str) -> None:
    text = queries.sql(name)
    file = name.partition(".")[0]
    types = [OTHERS.get((file, one), TYPES.get(one, "unknown")) for one in plans.names(text)]
    with psycopg.connect(server.url(template_copy)) as connection:
        connection.execute(plans.prepared(text, types).encode())


def test_names_are_unique_and_every_query_says_what_it_is() -> None:
    assert len(queries.all_queries()) > 60
    for name, text in queries.all_queries().items():
        assert "%s" not in text, name
        assert text.rstrip().endswith(";"), name


@pytest.fixture(scope="module")
def template_copy(server: postgres.PostgresServer, template: str) -> Iterator[str]:
    name = server.new_database(template=template)
    yield name
    server.drop_database(name)


@pytest.fixture(scope="module")
def crowded(server: postgres.PostgresServer, template: str) -> Iterator[str]:
    """The URL of the full installation."""
    name = server.new_database(template=template)

    async def weeks() -> None:
        db = database.Database(server.url(name), size=1, name="weeks")
        await db.open()
        await crowd.make_weeks(db)
        await db.close()

    asyncio.run(weeks())
    crowd.fill(server.url(name))
    yield server.url(name)
    server.drop_database(name)


class Scene:
    """What the statements under test are given: real rows of the full installation."""

    def __init__(self, connection: database.Connection, raw: database.Connection, now: datetime) -> None:
        self.connection = connection
        self.raw = raw
        self.now = now
        self.holder = runs.Holder("one", dict.fromkeys(range(ids.SHARDS), 7))
        self.soon = now + timedelta(seconds=10)

    async def some(self, what: str, table: str, where: str = "true", count: int = BATCH) -> list[Any]:
        """`count` values from rows that lie together in the table."""
        cursor = await self.raw.execute(f"SELECT {what} FROM {table} WHERE {where} LIMIT {count}".encode())
        return [row[0] if len(row) == 1 else row for row in await cursor.fetchall()]

    async def keys(self, *in_states: S) -> list[runs.Key]:
        """Open attempts."""
        names = ", ".join(f"'{state}'" for state in in_states)
        rows = await self.some("run_id, token, shard", "live_runs", f"state IN ({names})")
        return [runs.Key(*row) for row in rows]


async def _lock_due(scene: Scene) -> None:
    due = await scene.some("job_id", "jobs", "next_run_at <= now()", BATCH // 2)
    for first in ([], due):
        await fire_rows.lock_due(scene.connection, shards=range(ids.SHARDS), before=scene.now, batch=BATCH, first=first)


async def _due_by_owner(scene: Scene) -> None:
    """Few became due since the last look, of all that are due."""
    past = scene.now - timedelta(minutes=1)
    for where, since in ((range(1), past), (range(ids.SHARDS), scene.now)):
        found = await fire_rows.due_by_owner(
            scene.connection, shards=where, since=since, before=scene.now, few=64, most=BATCH
        )
        assert bool(found) is (since is past)


async def _lock_jobs(scene: Scene) -> None:
    due = await scene.some("job_id", "jobs", "next_run_at <= now()")
    await fire_rows.lock_jobs(scene.connection, job_ids=due, before=scene.now)


async def _insert_runs(scene: Scene) -> None:
    at = scene.now.replace(second=0, microsecond=0)
    new = [
        fire.new_run(job_id=job, name=f"n{number}", plan=jobs.plan(), slot=firing.Slot(at, S.QUEUED))
        for number, job in enumerate(await scene.some("job_id", "jobs"))
    ]
    given = {run.run_id: fire_rows.Given(number, jobs.WORKER, 90) for number, run in enumerate(new) if number % 2}
    made = await fire_rows.insert_runs(scene.connection, new, now=scene.now, given=given, epoch=1)
    assert sum(one.payload is not None for one in made.values()) == len(given) == BATCH // 2
    shown = [fire_rows.Shown(run.job_id, at, 1, at) for run in new]
    await fire_rows.show_fired(scene.connection, shown, now=scene.now)


async def _advance(scene: Scene) -> None:
    later = scene.now + timedelta(days=2)
    moves = [fire_rows.Advance(job, scene.now, later) for job in await scene.some("job_id", "jobs")]
    await fire_rows.advance(scene.connection, moves)


async def _live_of_jobs(scene: Scene) -> None:
    await fire_rows.live_of_jobs(scene.connection, await scene.some("job_id", "jobs", "name LIKE 'job-1_____'"))


async def _insert_skips(scene: Scene) -> None:
    found = await scene.some("job_id", "jobs")
    new = [fire_rows.NewSkip(job, scene.now, scene.now, 1, states.SkipReason.FORBID) for job in found]
    await fire_rows.insert_skips(scene.connection, new, now=scene.now)


async def _mirror(scene: Scene) -> None:
    """An edit of a batch of jobs: read, locked, settled, stored."""
    found = await scene.some("job_id, owner, name, shard, created_at, spec_id", "jobs")
    job_ids = [row.job_id for row in found]
    await mirroring.known(scene.connection, job_ids)
    await mirroring.lock(scene.connection, job_ids)
    edited = [
        mirroring.Row(
            job_id=row.job_id, owner=row.owner, name=row.name, shard=row.shard, created_at=row.created_at,
            counts_from=row.created_at, generation=2, resource_version=2, labels=None, next_slot_at=scene.soon,
            delay=timedelta(seconds=7), zone="Europe/Berlin", ttl_seconds=None, suspended=False, parked=None,
            pool=None, handler=None, concurrency_group=None,
        )
        for row in found
    ]  # fmt: skip
    await mirroring.edit_jobs(scene.connection, edited, {row.job_id: row.spec_id for row in found}, now=scene.now)
    new = [dataclasses.replace(row, job_id=uuid.uuid4()) for row in edited]
    await mirroring.add_jobs(scene.connection, new, {row.job_id: 1 for row in new})
    await mirroring.delete_jobs(scene.connection, dict.fromkeys(job_ids, 3), now=scene.now)


async def _status(scene: Scene) -> None:
    """A batch of news among many objects that have none."""
    text = "UPDATE job_status SET dirty_at = %s WHERE job_id = ANY(%s)"
    changed = await scene.some("job_id", "jobs", "name LIKE 'job-1_____'")
    await scene.raw.execute(text, (scene.now - timedelta(minutes=1), changed))
    found = await status.dirty(
        scene.connection, range(ids.SHARDS), written_before=scene.now, settled=scene.now, batch=BATCH, usual=BATCH
    )
    assert len(found) == BATCH
    done = [status.Written(one.job_id, one.version, b"digest", patched=True, told=b"{}") for one in found]
    await status.written(scene.connection, done, now=scene.now)


async def _news(scene: Scene) -> None:
    """What events tell of."""
    failed = await scene.some("job_id, run_id, attempt", "live_runs", "starts_with(owner, 'k8s/')")
    await status.note_failed(scene.connection, failed, now=scene.now)
    await status.note_stuck(scene.connection, [key.run_id for key in await scene.keys(S.CLAIMED)], now=scene.now)
    ended = await scene.some("run_id", "run_history", "state = 'Dead'")
    wanted = [*((run_id, None) for run_id in ended), *((run_id, attempt) for _, run_id, attempt in failed)]
    await status.facts_of_runs(scene.connection, wanted[:BATCH])


async def _claim(scene: Scene) -> None:
    await jobs.claim(scene.connection, holder=scene.holder, limit=BATCH, now=scene.now)


async def _launched(scene: Scene) -> None:
    items = [runs.Launched(key.run_id, key.token, key.shard, POD, scene.now) for key in await scene.keys(S.CLAIMED)]
    await runs.launched(scene.connection, holder=scene.holder, items=items)


async def _running(scene: Scene) -> None:
    items = [runs.Started(key.run_id, key.token, key.shard, POD, "n") for key in await scene.keys(S.CLAIMED)]
    await runs.running(scene.connection, holder=scene.holder, items=items, now=scene.now)


async def _lock_open(scene: Scene) -> None:
    keys = await scene.keys(S.CLAIMED, S.RUNNING)
    await runs.lock_open(scene.connection, holder=scene.holder, items=keys)


async def _finish(scene: Scene) -> None:
    outcomes = [
        runs.Outcome(key.run_id, key.token, S.SUCCEEDED, None, None, 0, 0, None) for key in await scene.keys(S.RUNNING)
    ]
    await runs.finish(scene.connection, outcomes, now=scene.now)


async def _retry(scene: Scene) -> None:
    outcomes = [
        runs.Outcome(key.run_id, key.token, S.RETRYING, None, None, 1, 0, scene.soon)
        for key in await scene.keys(S.RUNNING)
    ]
    await runs.retry(scene.connection, outcomes)


async def _hand_back(scene: Scene) -> None:
    await runs.hand_back(scene.connection, holder=scene.holder, items=await scene.keys(S.CLAIMED))


async def _cancel_waiting(scene: Scene) -> None:
    waiting = await scene.some("run_id", "live_runs", "state = 'Queued'")
    await runs.cancel_waiting(scene.connection, run_ids=waiting, reason="why", now=scene.now)


async def _stop_open(scene: Scene) -> None:
    opened = [key.run_id for key in await scene.keys(S.RUNNING)]
    await runs.stop_open(scene.connection, run_ids=opened, reason="why")


async def _survey(scene: Scene) -> None:
    await survey.look(scene.connection)


async def _wake(scene: Scene) -> None:
    await runs.wake(scene.connection, shards=range(ids.SHARDS))


async def _overdue(scene: Scene) -> None:
    await runs.overdue(scene.connection, shards=range(ids.SHARDS), now=scene.now, limit=BATCH)


async def _jobs_waiting(scene: Scene) -> None:
    await runs.jobs_waiting(
        scene.connection, shards=range(ids.SHARDS), after=runs.NO_RUN, now=scene.now - timedelta(minutes=1), limit=BATCH
    )


async def _promote(scene: Scene) -> None:
    blocked = await scene.some("run_id", "live_runs", "state = 'Blocked'")
    await runs.promote(scene.connection, blocked, now=scene.now)
    await runs.lock_specs_of_jobs(scene.connection, await scene.some("job_id", "jobs"))


async def _limits(scene: Scene) -> None:
    caps = {f"k8s/team-{number}": BATCH for number in (4, 5, 6)}  # in the crowd an owner's runs are all in one state
    await limits.lock(scene.connection, [f"owner:{owner}" for owner in caps])
    found = await limits.open_of_owners(scene.connection, caps)
    assert set(found.values()) == {BATCH}
    await limits.open_of_pools(scene.connection, {jobs.POOL: BATCH})


async def _groups(scene: Scene) -> None:
    """Many runs wait in few groups, whose places are taken."""
    await scene.raw.execute(b"UPDATE live_runs SET concurrency_group = 'group-' || (shard & 3) WHERE shard < 40")
    await scene.raw.execute(b"UPDATE live_runs SET reason = 'GroupLimit' WHERE shard < 30 AND state = 'Blocked'")
    names = await groups.waiting(scene.connection)
    assert len(names) == 2
    await limits.places_of_groups(scene.connection, dict.fromkeys(names, BATCH))
    rooms = dict.fromkeys(names, BATCH // 2)
    job_ids = await groups.heads(scene.connection, rooms)
    back = await scene.some("run_id", "live_runs", "waits_for_group", 10)
    await groups.leave(scene.connection, back)
    await groups.wait(scene.connection, dict.fromkeys(back, "why"), now=scene.now)
    await groups.tell(scene.connection, dict.fromkeys(names))
    assert await groups.promote(scene.connection, rooms, job_ids=job_ids, now=scene.now) == BATCH


async def _redrives(scene: Scene) -> None:
    wish = redrives.Selection("k8s/team-1", S.DEAD, scene.soon, since=scene.now - timedelta(days=20))
    found = await redrives.find(scene.connection, wish, after=runs.NO_RUN, limit=20)
    assert len(found) == 20
    job_ids = await redrives.lock_jobs(scene.connection, {row.job_id for row in found})
    specs = await redrives.specs(scene.connection, [row.run_id for row in found], owner=wish.owner, job_ids=job_ids)
    back = await redrives.redrive(
        scene.connection, {run: jobs.plan() for run in specs}, owner=wish.owner, now=scene.now
    )
    assert len(back) == 20
    await redrives.audit(scene.connection, back, owner=wish.owner, actor="somebody", now=scene.now)


async def _redrives_of_a_job(scene: Scene) -> None:
    """It is looked for among all of its owner that did not end well."""
    wish = redrives.Selection("k8s/team-1", S.DEAD, scene.soon, job_name="job-201")
    assert len(await redrives.find(scene.connection, wish, after=runs.NO_RUN, limit=20)) == 20


async def _backfills(scene: Scene) -> None:
    [(job, at)] = await scene.some("job_id, scheduled_at", "run_history", count=1)
    instants = [at + timedelta(minutes=number) for number in range(-BATCH // 2, BATCH // 2)]
    assert at in await backfills.taken(scene.connection, job_id=job, instants=instants)
    ended = dict(await scene.some("run_id, scheduled_at", "run_history"))
    assert len(await backfills.ended(scene.connection, ended)) == BATCH
    [open_one] = await backfills.due(scene.connection, shards=range(ids.SHARDS), now=scene.now, ahead=AHEAD, limit=1)
    found = await backfills.lock(scene.connection, open_one)
    assert found is not None
    await backfills.save(scene.connection, found.row, look_at=scene.soon)
    await backfills.reopen(scene.connection, run_id=uuid.UUID(int=5), now=scene.now)
    await backfills.named(scene.connection, owner="k8s/team-7", name="backfill-107")


async def _shards(scene: Scene) -> None:
    await shards.beat(scene.connection, replica="one", role=sharding.Role.OPERATOR, lease=10, zone_version="2026a")
    await shards.release(scene.connection, replica="one", shards=[1, 2, 3])
    await shards.take(scene.connection, replica="one", lease=10, shards=[1, 2, 3])


async def _changes(scene: Scene) -> None:
    standing = await changes.newest(scene.connection)
    await changes.is_kept(scene.connection, standing.newest - 10, standing=standing)
    await changes.read_after(scene.connection, standing.newest - 100, rows=BATCH)
    await changes.number(scene.connection)


def _page(**fields: Any) -> Callable[[Scene], Awaitable[None]]:
    async def page(scene: Scene) -> None:
        chosen = fields.pop("found", frozenset(states.RunState))
        sift = listing.Filter(states=chosen, **fields)
        span = listing.Span(scene.now - timedelta(days=21), scene.soon, scene.soon)
        named = await listing.job_ids(scene.connection, owner="k8s/team-7", name="job-107") if "job" in fields else ()
        for look in (listing.live, listing.history, listing.skips):
            await look(scene.connection, sift, span, jobs=named, before=listing.TOP, take=BATCH)

    return page


async def _merged(scene: Scene) -> None:
    """A page over REST, as most ask for it."""
    span = listing.Span(scene.now - timedelta(days=21), scene.soon, scene.soon)
    whole = frozenset({*map(str, states.RunState), listing.SKIPPED})
    found = await pages.page(
        scene.connection,
        listing.Filter(owner="k8s/team-7", states=whole),
        span,
        jobs=(),
        before=listing.TOP,
        limit=BATCH,
    )
    assert len(found.runs) == BATCH


async def _of_a_state(scene: Scene) -> None:
    """A long page of what ended otherwise than well, by the index that says whose it is."""
    span = listing.Span(scene.now - timedelta(days=21), scene.soon, scene.soon)
    sift = listing.Filter(owner="k8s/team-1", states=frozenset({"Dead", "Cancelled"}))
    found = await listing.history(scene.connection, sift, span, jobs=(), before=listing.TOP, take=resources.MAX_PAGE)
    assert len(found.runs) == resources.MAX_PAGE


async def _named(scene: Scene) -> None:
    [run_id] = await scene.some("run_id", "run_history", "owner = 'k8s/team-8'", 1)
    await listing.by_id(scene.connection, owner="k8s/team-8", run_id=run_id)
    await listing.by_name(scene.connection, owner="k8s/team-50", name="job-50-50")
    [name] = await scene.some("name", "run_history", "kind = 'Slot' AND owner = 'k8s/team-8'", 1)
    await listing.by_name(scene.connection, owner="k8s/team-8", name=name)
    await listing.by_ids(scene.connection, await scene.some("run_id", "run_history"))


async def _pauses(scene: Scene) -> None:
    found = await scene.some("job_id", "jobs", "next_run_at > now()")
    await pauses.failures(scene.connection, found)
    await pauses.lock_firing(scene.connection, found)
    await pauses.lock_status(scene.connection, found)
    await pauses.last_dead(scene.connection, await scene.some("DISTINCT job_id", "run_history", "state = 'Dead'"))
    await pauses.pause(scene.connection, found, now=scene.now)
    await pauses.forget_success(scene.connection, found)
    await pauses.resumable(scene.connection, shards=range(ids.SHARDS), limit=BATCH)
    await pauses.lock_paused(scene.connection, found)
    await pauses.forget_failures(scene.connection, found)
    await pauses.resume(scene.connection, [pauses.Next(job, scene.soon, scene.soon) for job in found], now=scene.now)


async def _expiry(scene: Scene) -> None:
    """A batch that is due, and as one-shots many that wait for their time to be over."""
    over = await scene.some("job_id", "jobs", "name LIKE 'job-5_____'", 20 * BATCH)
    await scene.raw.execute(
        "UPDATE jobs SET ttl_seconds = 60, next_slot_at = NULL, next_run_at = NULL, expires_at = %s WHERE job_id = ANY(%s)",
        (scene.soon, over),
    )
    await scene.raw.execute("UPDATE jobs SET expires_at = %s WHERE job_id = ANY(%s)", (scene.now, over[:BATCH]))
    await scene.raw.execute(
        "UPDATE job_specs SET spec = spec::jsonb || jsonb_build_object('at', now()) WHERE job_id = ANY(%s)",
        (over[:BATCH],),
    )
    found = await expiry.lock_over(scene.connection, shards=range(ids.SHARDS), objects=True, now=scene.now, limit=BATCH)
    assert set(found) == set(over[:BATCH])
    await expiry.settle(scene.connection, found, now=scene.now, again=scene.soon)
    await shards.beat(scene.connection, replica="one", role=sharding.Role.OPERATOR, lease=10, zone_version="2026a")


async def _backlog(scene: Scene) -> None:
    """A pool in whose queue many owners have runs, and some have many."""
    await scene.raw.execute(
        "UPDATE live_runs SET pool = %s, handler = %s, shard = shard + 256 "
        "WHERE shard < 128 AND state = 'Queued' AND pool IS NULL",
        (jobs.POOL, jobs.HANDLER),
    )
    starts = {jobs.HANDLER: "k8s/team-50", "other": ""}
    everybody = pools.Settings(jobs.POOL, jobs.OWNER, allowed_owners=(pools.EVERYBODY,)).spans
    waiting = await pools.waiting(scene.connection, pool=jobs.POOL, starts=starts, spans=everybody, limit=BATCH)
    assert set(waiting) == {jobs.HANDLER}
    assert waiting[jobs.HANDLER][0] == "k8s/team-50"
    assert len(set(waiting[jobs.HANDLER])) == 40 == len(waiting[jobs.HANDLER])
    shares = [pools.Share(jobs.HANDLER, owner, BATCH // 40) for owner in waiting[jobs.HANDLER]]
    locked = await pools.lock_queued(scene.connection, pool=jobs.POOL, shares=shares)
    assert len(locked) == BATCH
    given = [pools.Assignment(row.run_id, jobs.WORKER) for row in locked]
    assert len(await pools.assign(scene.connection, given, lease=90, now=scene.now)) == BATCH
    await pools.add(scene.connection, pool=jobs.POOL, owner=jobs.OWNER, name="mailers")
    assert set(await pools.settings(scene.connection, [jobs.POOL, "k8s/a/b"])) == {jobs.POOL}
    few = pools.Settings(jobs.POOL, "k8s/nobody", allowed_owners=("k8s/team-50", "k8s/team-51")).spans
    found = await pools.waiting(scene.connection, pool=jobs.POOL, starts=starts, spans=few, limit=BATCH)
    assert set(found[jobs.HANDLER]) <= {"k8s/team-50", "k8s/team-51"}
    spans = {(jobs.POOL, jobs.HANDLER): everybody, (jobs.POOL, "other"): everybody}
    assert await fire_rows.hand_over(scene.connection, spans) == (1, {(jobs.POOL, "other")})
    wake = await runs.wake(scene.connection, shards=ids.POOL_SHARDS, spans=spans)
    assert (wake.leased, wake.queued_for) == (True, {(jobs.POOL, jobs.HANDLER)})


async def _workerpools(scene: Scene) -> None:
    """A pool with a backlog, among many runs of pods."""
    pool = "k8s/team-7/mailers"
    await scene.raw.execute(
        "UPDATE live_runs SET pool = %s, handler = 'email.send', shard = shard + 256, "
        "lease_until = CASE WHEN token IS NOT NULL THEN now() END, worker = CASE WHEN token IS NOT NULL THEN 'w' END "
        "WHERE shard < 8 AND pool IS NULL AND state IN ('Queued', 'Running')",
        (pool,),
    )
    setup = workerpools.Setup(uuid.UUID(int=9), None, (), ("email.send",), "Poll", 90, 30)
    await workerpools.store(scene.connection, pool, setup, resource_version=1)
    loaded = await workerpools.all_pools(scene.connection, owners=["k8s/team-7"], now=scene.now)
    assert loaded[pool].backlog > BATCH
    assert loaded[pool].running > BATCH
    assert await workerpools.found(scene.connection, [pool])
    last, _ = await workerpools.jobs_page(
        scene.connection, after=mirroring.Place("k8s/team-7"), pools=[pool], size=workerpools.COUNT_LIMIT
    )
    assert last is not None
    await workerpools.remove(scene.connection, [pool], now=scene.now)


async def _classes(scene: Scene) -> None:
    """A class that many jobs are of, and has changed."""
    await scene.raw.execute(
        "UPDATE job_specs s SET class = 'batch', class_hash = 'old' FROM jobs j WHERE j.spec_id = s.spec_id AND j.shard < 8"
    )
    await classes.change(scene.connection)
    await classes.store(scene.connection, [classes.Class("batch", "{}", b"new"), classes.Class("gone", "{}", b"x")])
    assert await classes.hashes(scene.connection)
    await classes.remove(scene.connection, ["gone"])
    assert await classes.share(scene.connection, ["batch", "gone"])
    page = await classes.stale_page(scene.connection, after=0, size=BATCH)
    assert page.job_ids
    found = await classes.lock(scene.connection, page.job_ids)
    await classes.still_good(scene.connection, {one.spec_id: b"new" for one in found})


async def _compared(scene: Scene) -> None:
    """A page of the jobs of the cluster, from the middle of them on, while a tenant has many."""
    await scene.raw.execute("INSERT INTO owners (owner) VALUES ('rest/large')")
    await scene.raw.execute(
        "UPDATE jobs SET owner = 'rest/large', declared = false WHERE job_id = ANY(%s)",
        (await scene.some("job_id", "jobs", "owner > 'k8s/team-50'", 20 * BATCH),),
    )
    after = mirroring.Place("k8s/team-60", "job-5", uuid.UUID(int=1))
    for owners in (None, ["k8s/team-60", "k8s/team-61"]):
        assert len(await mirroring.page(scene.connection, after=after, owners=owners, size=BATCH)) == BATCH
    assert len(await mirroring.firing_page(scene.connection, after=after, size=BATCH)) == BATCH
    newest = await mirroring.last_spec_before(scene.connection, scene.soon)
    await scene.raw.execute("UPDATE job_specs SET template_hash = '1' WHERE spec_id > %s", (newest - BATCH,))
    assert (await mirroring.unchecked_page(scene.connection, after=newest - BATCH, size=BATCH))[0] == newest


async def _rest_jobs(scene: Scene) -> None:
    """A batch of jobs made over REST by an owner that has many, with a quota."""
    owner = "k8s/team-7"
    asker = asking.Asker(owner, "somebody")
    caps = limits_domain.parse("owners: {k8s/team-7: {maxJobs: 200}, rest/acme: {maxJobs: 1000}}")
    for one in (asker, asking.Asker("rest/acme", "somebody")):
        wanted = [creating.read(one, {**rested.NIGHTLY, "name": f"made-{number}"}) for number in range(BATCH)]
        outcomes = await creating.add(scene.connection, caps, wanted, begun=begins.Begins(), now=scene.now)
        assert {type(outcome) for outcome in outcomes} == {errors.Refused if one is asker else creating.Made}
    keys = [("rest/acme", f"key-{number}") for number in range(BATCH)]
    assert all(await answer_rows.lock(scene.connection, keys))
    kept = [answer_rows.Kept(*key, b"digest", 201, "/v1/jobs/1", "{}") for key in keys]
    await answer_rows.keep(scene.connection, kept, now=scene.now)
    assert len(await answer_rows.kept(scene.connection, keys, since=scene.now - AHEAD)) == BATCH
    [made, *_] = await scene.some("job_id", "audit", "owner = 'rest/acme'")
    for job_ids in (None, [made]):
        found = await audits.page(
            scene.connection, "rest/acme", job_ids=job_ids, oldest=scene.now, before=(scene.soon, 0), size=BATCH
        )
        assert len(found) == (1 if job_ids else BATCH)


async def _rest_lists(scene: Scene) -> None:
    """Pages of an owner that has many jobs, and all that is shown of one."""
    owner = "k8s/team-7"
    after = job_rows.Place("job-5", uuid.UUID(int=1))
    found = await job_rows.page(scene.connection, owner, job_rows.Wanted(), after=after, size=BATCH, scan=BATCH)
    assert len(found.jobs) == BATCH
    job = found.jobs[0]
    await job_rows.newest_slots(scene.connection, [one.job_id for one in found.jobs])
    await job_rows.activity(scene.connection, job.job_id)
    assert await job_rows.one(scene.connection, owner=owner, job_id=job.job_id)
    assert await job_rows.lock(scene.connection, owner=owner, job_id=job.job_id)
    await job_rows.forget_conditions(scene.connection, job.job_id)


async def _rest_lists_filtered(scene: Scene) -> None:
    """What few have is looked for among so many and no more."""
    wanted = job_rows.Wanted(prefix="job-", handler="none", pool="none", standing="Paused", labels={"a": "b"})
    found = await job_rows.page(
        scene.connection, "k8s/team-7", wanted, after=job_rows.Place(), size=BATCH, scan=20 * BATCH
    )
    assert (found.jobs, found.next is not None) == ([], True)


async def _kafka(scene: Scene) -> None:
    """A pool with some messages on their way, and many attempts that somebody has started."""
    await scene.raw.execute(
        "UPDATE live_runs SET pool = %s, handler = 'email.send', shard = shard + 256, lease_until = now(), "
        "worker = CASE WHEN run_id = ANY(ARRAY(SELECT run_id FROM live_runs WHERE shard < 8 AND state = 'Running' "
        "AND pool IS NULL LIMIT %s)) THEN NULL ELSE 'w' END WHERE shard < 8 AND pool IS NULL AND state = 'Running'",
        (jobs.POOL, BATCH),
    )
    found = await kafka.unstarted(scene.connection, [jobs.POOL], now=scene.now)
    assert found[jobs.POOL, "email.send"][0] == BATCH
    await kafka.dispatched(scene.connection)
    await kafka.show(scene.connection, {jobs.POOL: "any"}, replica="one", now=scene.now)


async def _rezone(scene: Scene) -> None:
    page = await rezoning.page(scene.connection, after=rezoning.BEGINNING, limit=BATCH)
    found = [one.job_id for one in page] or await scene.some("job_id", "jobs", "next_slot_at > now()")
    await rezoning.lock(scene.connection, found, now=scene.now)
    later = scene.now + timedelta(days=2)
    await rezoning.move(
        scene.connection, [rezoning.Move(job, later, timedelta(), None) for job in found], now=scene.now
    )


async def _deleted_jobs(scene: Scene) -> None:
    """Some are old enough among many others, gone and not."""
    text = "UPDATE jobs SET deleted_at = %s, next_slot_at = NULL, next_run_at = NULL WHERE job_id = ANY(%s)"
    without_runs = await scene.some("job_id", "jobs", "spec_id > 900000", 2 * BATCH)
    await scene.raw.execute(text, (scene.now - timedelta(days=60), without_runs[:BATCH]))
    await scene.raw.execute(text, (scene.now, without_runs[BATCH:]))
    before = scene.now - timedelta(days=30)
    assert await pruning.sweep(scene.connection, "deleted_jobs", before=before) == BATCH


async def _leases(scene: Scene) -> None:
    """What a few workers have of many open attempts, and as much that is over."""
    names = [f"worker-{number}" for number in range(4)]
    text = (
        "UPDATE live_runs SET pool = %s, handler = 'email.send', shard = shard + 256, lease_until = %s, worker = "
        "'worker-' || (hashtext(run_id::text) & 3) WHERE run_id = ANY(%s)"
    )
    opened = [key.run_id for key in await scene.keys(S.CLAIMED, S.RUNNING)]
    await scene.raw.execute(text.encode(), (jobs.POOL, scene.now, opened))
    await scene.raw.execute("UPDATE installation SET served_since = now()")
    mine = f"pool = '{jobs.POOL}'"
    attempts = [leases.Attempt(*row) for row in await scene.some("run_id, token, pool, worker", "live_runs", mine)]
    beats = [
        leases.Beat(jobs.POOL, name, 90, [(one.run_id, one.token) for one in attempts if one.worker == name])
        for name in names
    ]
    silent = [dataclasses.replace(beat, held=()) for beat in beats]
    assert len(await leases.standing(scene.connection, now=scene.now)) == len(names)
    await leases.lock_lapsed(scene.connection, pool=jobs.POOL, workers=names, now=scene.now, limit=BATCH)
    await leases.overdue(scene.connection, pool=jobs.POOL, workers=names, now=scene.now, limit=BATCH)
    await leases.wait_longer(scene.connection, pool=jobs.POOL, now=scene.now)
    await leases.start(scene.connection, beats, now=scene.now)
    assert await leases.unlisted(scene.connection, silent, now=scene.now, claimed_before=scene.now)
    assert len(await leases.renew(scene.connection, beats, now=scene.now)) == BATCH
    assert len(await leases.lock_open(scene.connection, attempts)) == BATCH
    await scene.raw.execute(f"UPDATE live_runs SET state = 'Claimed' WHERE {mine}".encode())
    assert len(await leases.release(scene.connection, attempts)) == BATCH
    over = [leases.Attempt(run_id, 1, jobs.POOL, "worker-1") for run_id in await scene.some("run_id", "run_history")]
    assert len(await leases.recall(scene.connection, over)) == BATCH


async def _doctor(scene: Scene) -> None:
    """All that is looked at, on an installation with far more of everything than is shown."""
    limit = patient.LIMIT
    await scene.raw.execute("UPDATE jobs SET parked = 'any', next_slot_at = NULL, next_run_at = NULL WHERE shard < 4")
    for name in ("server", "settings", "standbys", "slots", "epoch", "replicas", "pooled", "kept"):
        await doctor.some(scene.connection, name)
    for name in ("tables", "options"):
        await doctor.some(scene.connection, name, tables=list(doctor.TABLES))
    await doctor.some(scene.connection, "leases", now=scene.now)
    await doctor.some(scene.connection, "transactions", before=scene.now, limit=limit)
    await doctor.some(scene.connection, "tokens", after=scene.now, before=scene.soon, limit=limit)
    assert len(await doctor.some(scene.connection, "parked", limit=limit)) == limit
    for name in ("overdue", "open_runs"):
        assert len(await doctor.some(scene.connection, name, before=scene.now, limit=limit)) == limit
    assert await doctor.some(scene.connection, "conflicts", limit=limit) == []
    assert (await doctor.one(scene.connection, "unnumbered", limit=limit)).count == 100


HOT: Mapping[str, tuple[Callable[[Scene], Awaitable[None]], int]] = {
    "lock_due": (_lock_due, BATCH),
    "due_by_owner": (_due_by_owner, BATCH),
    "lock_jobs": (_lock_jobs, BATCH),
    "insert_runs": (_insert_runs, BATCH),
    "insert_skips": (_insert_skips, BATCH),
    "advance": (_advance, BATCH),
    "live_of_jobs": (_live_of_jobs, BATCH),
    "mirror": (_mirror, BATCH),
    "status": (_status, BATCH),
    "news": (_news, BATCH),
    "claim": (_claim, BATCH),
    "launched": (_launched, BATCH),
    "running": (_running, BATCH),
    "lock_open": (_lock_open, BATCH),
    "finish": (_finish, BATCH),
    "retry": (_retry, BATCH),
    "leases": (_leases, BATCH),
    "hand_back": (_hand_back, BATCH),
    "cancel_waiting": (_cancel_waiting, BATCH),
    "stop_open": (_stop_open, BATCH),
    "wake": (_wake, 0),
    "overdue": (_overdue, BATCH),
    "jobs_waiting": (_jobs_waiting, BATCH),
    "promote": (_promote, BATCH),
    "pauses": (_pauses, BATCH),
    "expiry": (_expiry, BATCH),
    "limits": (_limits, 3 * BATCH),
    "groups": (_groups, BATCH),
    "redrives": (_redrives, BATCH),
    "redrives of a job": (_redrives_of_a_job, 5_000),
    "backfills": (_backfills, BATCH),
    "shards": (_shards, BATCH),
    "survey": (_survey, 6 * survey.LIMIT),
    "changes": (_changes, BATCH),
    "doctor": (_doctor, patient.LIMIT),
    "deleted jobs": (_deleted_jobs, BATCH),
    "rezone": (_rezone, BATCH),
    "kafka": (_kafka, BATCH),
    "backlog": (_backlog, BATCH),
    "workerpools": (_workerpools, workerpools.COUNT_LIMIT),
    "classes": (_classes, BATCH),
    "compared": (_compared, BATCH),
    "jobs over REST": (_rest_jobs, BATCH),
    "lists of jobs over REST": (_rest_lists, BATCH),
    "a filtered list of jobs over REST": (_rest_lists_filtered, 20 * BATCH),
    "list all": (_page(), BATCH),
    "list an owner": (_page(owner="k8s/team-7"), BATCH),
    "list a job": (_page(owner="k8s/team-7", job="job-107"), listing.SCAN_ROWS),
    "list the dead": (_page(found=frozenset({"Dead"})), listing.SCAN_ROWS),
    "list a label": (_page(owner="k8s/team-7", equal={"tier": "gold"}), listing.SCAN_ROWS),
    "a page of all that became of slots": (_merged, BATCH),
    "list the dead of an owner": (_of_a_state, resources.MAX_PAGE),
    "one by name": (_named, BATCH),
}


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("hot", HOT)
async def test_no_hot_statement_reads_more_than_twice_its_batch(crowded: str, hot: str, mode: str) -> None:
    act, batch = HOT[hot]
    db = database.Database(crowded, size=2, name="plans")
    await db.open()
    async with contextlib.aclosing(_Closing(db)), db.transaction() as connection:
        await connection.execute("SET LOCAL statement_timeout = '60s'")
        explainer = plans.Explainer(connection, mode)
        await act(Scene(explainer.connection, connection, await database.now(connection)))
        # a week that has just begun is a page or a few, and those are read whole
        empty = await jobs.query(connection, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relpages <= 8")
        await connection.rollback()
    assert explainer.explained
    for one in explainer.explained:
        assert bad_scans(one, batch, {row.relname for row in empty}) == [], one.text


def bad_scans(one: plans.Explained, batch: int, empty: Collection[str] = ()) -> list[plans.Scan]:
    """What reads a big table as a whole, or more of it than the batch is worth."""
    return [
        scan
        for scan in one.scans()
        if scan.table not in empty and (scan.relation in BIG or scan.kind == "Bitmap Index Scan")
        if scan.kind == "Seq Scan" or scan.read > 2 * batch + PROBES
    ]


async def test_a_bad_plan_is_noticed(crowded: str) -> None:
    bad = (
        "SELECT count(*) FROM live_runs",
        "SELECT run_id FROM live_runs WHERE message = 'x' LIMIT 1",
        "SELECT run_id FROM live_runs WHERE shard = ANY('{1,2,3,4,5}') AND state = 'Queued' ORDER BY queue_at LIMIT 5",
        "SELECT run_id FROM run_history WHERE state = 'Succeeded' AND owner = 'k8s/team-1' AND node = 'x' LIMIT 1",
    )
    db = database.Database(crowded, size=1, name="plans")
    await db.open()
    async with contextlib.aclosing(_Closing(db)), db.transaction() as connection:
        explainer = plans.Explainer(connection, "force_custom_plan")
        for text in bad:
            await explainer.execute(text)
    assert all(bad_scans(one, BATCH) for one in explainer.explained)


class _Closing:
    def __init__(self, db: database.Database) -> None:
        self._db = db

    async def aclose(self) -> None:
        await self._db.close()


def test_the_full_installation_is_one(crowded: str) -> None:
    with psycopg.connect(crowded) as connection:
        for table, least in (("jobs", crowd.JOBS), ("run_history", crowd.HISTORY), ("live_runs", crowd.LIVE)):
            row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
            assert row is not None
            assert row[0] >= least
        row = connection.execute("SELECT count(DISTINCT state) FROM live_runs").fetchone()
        assert row == (len(states.LIVE),)
