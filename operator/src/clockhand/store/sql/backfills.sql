-- Backfills: past slots that are made into runs a few at a time. Whoever changes a row holds the lock of its job's row.

-- name: add
INSERT INTO backfills (backfill_id, job_id, owner, job_name, name, shard, from_at, to_at, newest_first, concurrency,
                       look_at, spec_id, slots, created_at)
SELECT %(backfill_id)s, job_id, owner, name, %(name)s, shard, %(from_at)s, %(to_at)s, %(newest_first)s, %(concurrency)s,
       %(now)s, spec_id, %(slots)s, %(now)s
FROM jobs WHERE job_id = %(job_id)s
ON CONFLICT (owner, name) DO NOTHING
RETURNING backfill_id;

-- name: due
-- Open backfills of the held shards that are to be looked at. Nobody puts one off for as long as `ahead`, but a clock that
-- went back.
SELECT backfill_id FROM backfills
WHERE ended_at IS NULL AND (look_at <= %(now)s OR look_at > %(now)s + %(ahead)s::interval) AND shard = ANY(%(shards)s::smallint[])
ORDER BY look_at
LIMIT %(limit)s;

-- name: lock_job
-- The job comes before its runs in the order of locks. One that somebody else holds is looked at again in the next pass.
SELECT job_id FROM jobs
WHERE job_id = (SELECT job_id FROM backfills WHERE backfill_id = %(backfill_id)s)
FOR UPDATE SKIP LOCKED;

-- name: wait_for_job
-- The same for a request, which waits for whoever holds it.
SELECT job_id FROM jobs
WHERE job_id = (SELECT job_id FROM backfills WHERE backfill_id = %(backfill_id)s AND owner = %(owner)s)
FOR UPDATE;

-- name: one
-- A statement of its own, after the lock: what the lock waited for is seen here. The job's row may be gone for good.
SELECT b.backfill_id, b.job_id, b.job_name, b.from_at, b.to_at, b.newest_first, b.concurrency,
       b.reached_at, b.open_at, b.spec_id, b.slots, b.made, b.passed, b.succeeded, b.failed, b.created_at, b.complete,
       b.stop_reason, b.ended_at,
       j.job_id IS NULL OR j.deleted_at IS NOT NULL AS job_is_gone, j.parked, j.created_at AS job_created_at,
       j.spec_id AS job_spec_id, s.spec::text AS spec
FROM backfills b LEFT JOIN jobs j USING (job_id) LEFT JOIN job_specs s ON s.spec_id = j.spec_id
WHERE b.backfill_id = %(backfill_id)s;

-- name: taken
-- Of some instants of a job, those for which a run exists, live or ended: a slot's own, or any backfill's.
SELECT n.at
FROM unnest(%(instants)s::timestamptz[]) AS n (at)
CROSS JOIN LATERAL (
    (SELECT FROM live_runs r
     WHERE r.job_id = %(job_id)s AND r.scheduled_at = n.at AND r.kind IN ('Slot', 'Backfill') LIMIT 1)
    UNION ALL
    (SELECT FROM run_history h
     WHERE h.job_id = %(job_id)s AND h.scheduled_at = n.at AND h.kind IN ('Slot', 'Backfill') LIMIT 1)
    LIMIT 1) AS found;

-- name: ended
-- Those of a backfill's runs that are over. The instant names the partition.
SELECT h.run_id, h.state::text AS state
FROM unnest(%(run_ids)s::uuid[], %(instants)s::timestamptz[]) AS n (run_id, scheduled_at)
JOIN run_history h ON h.run_id = n.run_id AND h.scheduled_at = n.scheduled_at;

-- name: save
UPDATE backfills
SET reached_at = %(reached_at)s, open_at = %(open_at)s, spec_id = %(spec_id)s, slots = %(slots)s, made = %(made)s,
    passed = %(passed)s, succeeded = %(succeeded)s, failed = %(failed)s, complete = %(complete)s,
    stop_reason = %(stop_reason)s, ended_at = %(ended_at)s, look_at = %(look_at)s
WHERE backfill_id = %(backfill_id)s;

-- name: put_off
UPDATE backfills SET look_at = %(look_at)s WHERE backfill_id = %(backfill_id)s;

-- name: reopen
-- An ended run of a backfill that is retried counts as open again; one that nobody had counted as ended still does.
UPDATE backfills b
SET failed = b.failed - 1, open_at = b.open_at || r.scheduled_at, ended_at = NULL, look_at = %(now)s
FROM live_runs r
WHERE r.run_id = %(run_id)s AND b.backfill_id = CASE WHEN r.kind = 'Backfill' THEN r.key::uuid END
  AND b.stop_reason IS NULL AND NOT r.scheduled_at = ANY (b.open_at);

-- name: shown
SELECT backfill_id, job_id, owner, job_name, name, from_at, to_at, newest_first, concurrency, slots, made, passed, succeeded,
       failed, created_at, stop_reason, ended_at, reached_at
FROM backfills WHERE backfill_id = %(backfill_id)s AND owner = %(owner)s;

-- name: named
SELECT backfill_id, job_id, owner, job_name, name, from_at, to_at, newest_first, concurrency, slots, made, passed, succeeded,
       failed, created_at, stop_reason, ended_at, reached_at
FROM backfills WHERE owner = %(owner)s AND name = %(name)s;
