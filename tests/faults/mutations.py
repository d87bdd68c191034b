"""The product with a guard taken out, in memory and in one process: to see that what is left notices, or that nothing does.

Each mutation must find the text it takes away; a guard that was reworded is an error here and not a mutant that lives.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence

from tests.faults.trigger import Trigger

from clockhand.domain import pods
from clockhand.engine import fire
from clockhand.store import database, firing, queries

UNCONSTRAINED = """
ALTER TABLE live_runs DROP CONSTRAINT live_runs_pkey, DROP CONSTRAINT live_runs_job_id_scheduled_at_kind_key_key;
ALTER TABLE run_history DROP CONSTRAINT run_history_pkey;
"""
"""Takes the unique keys of runs away from a database."""
UNORDERED = """
DO $$ DECLARE rule text; BEGIN
    SELECT conname INTO STRICT rule FROM pg_constraint
    WHERE conrelid = 'jobs'::regclass AND pg_get_constraintdef(oid) LIKE '%next_slot_at > last_slot_at%';
    EXECUTE format('ALTER TABLE jobs DROP CONSTRAINT %I', rule);
END $$
"""
"""Lets a job's next slot be one that it has had, as the half-done advance below leaves it."""

_MARK = " WHERE n.kind <> 'Slot' OR n.scheduled_at > j.last_slot_at"
_HOLDER = re.compile(
    r"AND EXISTS \(SELECT FROM shard_leases s\s+"
    r"WHERE s\.shard = r\.shard AND s\.generation = n\.generation AND s\.holder = %\(replica\)s\)"
)
_TOKEN = re.compile(r"AND r\.token = n\.token\b")
_GUARDED_BY_HOLDER = ("runs.launched", "runs.running", "runs.lock_open")
_GUARDED_BY_TOKEN = (*_GUARDED_BY_HOLDER, "runs.finish", "runs.retry", "runs.hand_back", "runs.waiting_for_pod")
_MOVE_MARK = """
UPDATE jobs SET last_slot_at = n.last_slot_at
FROM unnest(%(job_ids)s::uuid[], %(last)s::timestamptz[], %(next)s::timestamptz[], %(delays)s::interval[])
     AS n (job_id, last_slot_at, next_slot_at, delay)
WHERE jobs.job_id = n.job_id AND jobs.last_slot_at < n.last_slot_at
"""
_MOVE_NEXT = """
UPDATE jobs SET next_slot_at = n.next_slot_at, next_run_at = n.next_slot_at + n.delay
FROM unnest(%(job_ids)s::uuid[], %(last)s::timestamptz[], %(next)s::timestamptz[], %(delays)s::interval[])
     AS n (job_id, last_slot_at, next_slot_at, delay)
WHERE jobs.job_id = n.job_id
"""


def install(names: Sequence[str], trigger: Trigger) -> None:
    """Applies the named mutations to this process."""
    for name in names:
        _MUTATIONS[name](trigger)


def rewrite(changed: Mapping[str, str]) -> None:
    """Has this process use other texts for some named queries."""
    texts = {**queries.all_queries(), **changed}
    queries.all_queries = lambda: texts  # type: ignore[assignment]


def _without(pattern: re.Pattern[str], names: Sequence[str]) -> None:
    changed = {}
    for name in names:
        changed[name], count = pattern.subn("", queries.sql(name))
        if not count:
            raise LookupError(f"{name} has no {pattern.pattern}: the mutation is out of date")
    rewrite(changed)


def _no_mark(_: Trigger) -> None:
    """A slot that the job has had already is inserted again."""
    text = queries.sql("firing.insert_runs")
    if _MARK.strip() not in text:
        raise LookupError("firing.insert_runs has no check of the high-water mark: the mutation is out of date")
    rewrite({"firing.insert_runs": text.replace(_MARK.strip(), "")})


def _no_token(_: Trigger) -> None:
    """A write about an attempt that is over changes its successor."""
    _without(_TOKEN, _GUARDED_BY_TOKEN)
    lock = queries.sql("runs.lock_open")
    rewrite({"runs.lock_open": lock.replace("r.disruptions, r.token,", "r.disruptions, n.token,")})


def _no_generation(_: Trigger) -> None:
    """A replica that lost its shards still writes."""
    _without(_HOLDER, _GUARDED_BY_HOLDER)


def _random_names(_: Trigger) -> None:
    """Each process has a name of its own for an attempt's pod, as one that drew it at random would."""
    drawn = secrets.token_bytes(8)

    def pod_name(job_name: str, run_id: uuid.UUID, attempt: int) -> str:
        return f"{job_name[:30]}-{hashlib.sha256(drawn + run_id.bytes).hexdigest()[:12]}-{attempt}"

    pods.pod_name = pod_name


def _split_advance(trigger: Trigger) -> None:
    """The job's next slot is moved on in a second transaction, after the one that made the runs."""
    rewrite({"firing.advance": _MOVE_MARK, "mutation.move_next": _MOVE_NEXT})
    behind: list[firing.Advance] = []
    move_mark, run_once = firing.advance, fire.Fire.run_once

    async def advance(connection: database.Connection, moves: Sequence[firing.Advance]) -> None:
        behind.extend(moves)
        await move_mark(connection, moves)

    async def split(self: fire.Fire, shards: Collection[int], *, most: int = fire.BATCH, anybodys: bool = False) -> int:
        count = await run_once(self, shards, most=most, anybodys=anybodys)
        moves = list(behind)
        behind.clear()
        if moves:
            trigger.passed("between-transactions")
            async with self._db.transaction() as connection:
                parameters = {
                    "job_ids": [move.job_id for move in moves],
                    "last": [move.last_slot_at for move in moves],
                    "next": [move.next_slot_at for move in moves],
                    "delays": [move.delay for move in moves],
                }
                await database.execute(connection, "mutation.move_next", parameters)
        return count

    firing.advance = advance
    fire.Fire.run_once = split  # type: ignore[method-assign]


_MUTATIONS: Mapping[str, Callable[[Trigger], None]] = {
    "no-mark": _no_mark,
    "no-token": _no_token,
    "no-generation": _no_generation,
    "random-names": _random_names,
    "split-advance": _split_advance,
}
