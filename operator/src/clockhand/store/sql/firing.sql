-- name: lock_due
-- Due jobs of the given shards: those in `first`, and then, with one index probe a shard, of each shard with due jobs about
-- as many as of any other, so that a long backlog in one costs the others nothing. One of `first` that an edit has moved to
-- another shard in the meantime is its holder's. `shard + 0` keeps the plan at the ids.
WITH busy AS MATERIALIZED (
    SELECT mine.shard
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (SELECT FROM jobs WHERE jobs.shard = mine.shard AND next_run_at <= %(before)s LIMIT 1) AS any_due),
first AS MATERIALIZED (
    SELECT job_id, owner, name, shard, labels, spec_id, created_at, last_slot_at, next_slot_at, pool, handler, declared
    FROM jobs
    WHERE job_id = ANY(%(first)s::uuid[]) AND next_run_at <= %(before)s AND shard + 0 = ANY(%(shards)s::smallint[])
    FOR UPDATE SKIP LOCKED),
oldest AS MATERIALIZED (
    SELECT due.*
    FROM busy
    CROSS JOIN LATERAL (
        SELECT job_id, owner, name, shard, labels, spec_id, created_at, last_slot_at, next_slot_at, pool, handler,
               declared
        FROM jobs
        WHERE jobs.shard = busy.shard AND next_run_at <= %(before)s AND job_id <> ALL(%(first)s::uuid[])
        ORDER BY next_run_at
        LIMIT (SELECT greatest(ceil(%(batch)s::float / count(*)), 16)::bigint FROM busy)
        FOR UPDATE SKIP LOCKED) AS due
    LIMIT (SELECT %(batch)s - count(*) FROM first))
SELECT due.job_id, due.owner, due.name, due.shard, due.labels, due.spec_id, due.created_at, due.last_slot_at, due.next_slot_at,
       due.pool, due.handler, due.declared, job_specs.spec::text AS spec
FROM (TABLE first UNION ALL TABLE oldest) AS due
JOIN job_specs USING (spec_id);

-- name: due_by_owner
-- What has become due since an instant, by owner, the one that waits for longest first; a few of each are named. As many
-- owners come back as there are: whoever is left out of one look is in no other.
SELECT due.owner, (array_agg(due.job_id ORDER BY due.next_run_at))[:%(few)s] AS job_ids
FROM unnest(%(shards)s::smallint[]) AS mine (shard)
CROSS JOIN LATERAL (
    SELECT owner, job_id, next_run_at FROM jobs
    WHERE jobs.shard = mine.shard AND next_run_at > %(since)s AND next_run_at <= %(before)s
    ORDER BY next_run_at
    LIMIT %(most)s) AS due
GROUP BY due.owner
ORDER BY min(due.next_run_at);

-- name: lock_jobs
-- The named jobs that have a slot whose instant has come; its jitter may not be over. In one order for everybody, so that
-- two transactions cannot wait for each other.
SELECT job_id, owner, name, shard, labels, spec_id, created_at, last_slot_at, next_slot_at, pool, handler,
       declared, spec::text AS spec
FROM jobs JOIN job_specs USING (job_id, spec_id)
WHERE job_id = ANY(%(job_ids)s) AND next_slot_at <= %(before)s
ORDER BY job_id
FOR UPDATE OF jobs;

-- name: live_of_jobs
SELECT job_id, run_id, state::text AS state, ready_at, serial, kind = 'Backfill' AS backfill, concurrency_group,
       waits_for_group
FROM live_runs
WHERE job_id = ANY(%(job_ids)s);

-- name: hand_over
-- Before due runs go to waiting workers past the queue: where something is queued, nobody overtakes it. No epoch, on a
-- promoted database that has not raised it: nothing is claimed there.
SELECT (SELECT epoch FROM installation WHERE timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)) AS epoch,
       ARRAY(SELECT asked.number
             FROM unnest(%(pools)s::text[], %(handlers)s::text[], %(lows)s::text[], %(highs)s::text[])
                  WITH ORDINALITY AS asked (pool, handler, low, high, number)
             CROSS JOIN LATERAL (SELECT FROM live_runs r
                                 WHERE r.state = 'Queued' AND r.pool = asked.pool AND r.pool IS NOT NULL
                                   AND r.handler = asked.handler
                                   AND r.owner >= asked.low COLLATE "C" AND r.owner < asked.high COLLATE "C"
                                 LIMIT 1) AS there) AS queued;

-- name: insert_runs
-- A slot not after the job's high-water mark was decided before and is refused here; the unique key refuses a second run.
-- A run with a token is some worker's at once: its first attempt begins with the run.
WITH made AS (
    INSERT INTO live_runs (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                           pool, handler, concurrency_group, spec_id, payload, state, reason, serial, priority, queue_at,
                           ready_at, run_deadline_at, pending_timeout, attempt_timeout, attempt, token, fencing, worker,
                           claimed_at, launched_at, lease_until, deadline_at)
    SELECT n.run_id, j.job_id, j.owner, j.name, n.name, j.labels, n.kind, n.key, n.scheduled_at, %(now)s, j.shard,
           j.pool, j.handler, j.concurrency_group, j.spec_id, n.payload, n.state, n.reason, n.serial, n.priority,
           %(now)s - n.priority * interval '10 seconds', %(now)s, %(now)s + make_interval(secs => n.run_timeout),
           n.pending_timeout, n.attempt_timeout, (n.token IS NOT NULL)::int, n.token,
           CASE WHEN n.token IS NOT NULL THEN (%(epoch)s::bigint << 40) + nextval('claim_count') END, n.worker,
           CASE WHEN n.token IS NOT NULL THEN %(now)s END, CASE WHEN n.token IS NOT NULL THEN %(now)s END,
           %(now)s + make_interval(secs => n.lease),
           CASE WHEN n.token IS NOT NULL THEN %(now)s + make_interval(secs => n.attempt_timeout) END
    FROM unnest(%(run_ids)s::uuid[], %(job_ids)s::uuid[], %(names)s::text[], %(kinds)s::run_kind[], %(keys)s::text[],
                %(scheduled)s::timestamptz[], %(payloads)s::json[], %(states)s::run_state[], %(reasons)s::text[],
                %(serials)s::boolean[], %(priorities)s::int[], %(run_timeouts)s::int[], %(pending_timeouts)s::int[],
                %(attempt_timeouts)s::int[], %(tokens)s::bigint[], %(workers)s::text[], %(leases)s::int[])
         AS n (run_id, job_id, name, kind, key, scheduled_at, payload, state, reason, serial, priority, run_timeout,
               pending_timeout, attempt_timeout, token, worker, lease)
    JOIN jobs j ON j.job_id = n.job_id
    WHERE n.kind <> 'Slot' OR n.scheduled_at > j.last_slot_at
    ON CONFLICT DO NOTHING
    RETURNING run_id, state, token, fencing, spec_id, payload),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM made HAVING count(*) > 0)
SELECT made.run_id, made.state::text AS state, made.fencing,
       CASE WHEN made.token IS NOT NULL THEN coalesce(made.payload, s.payload, 'null')::text END AS payload
FROM made LEFT JOIN job_specs s ON made.token IS NOT NULL AND s.spec_id = made.spec_id;

-- name: advance
-- Moves the high-water mark in the transaction that made the runs; forwards only. No next slot: none comes any more.
UPDATE jobs
SET last_slot_at = n.last_slot_at, next_slot_at = n.next_slot_at, next_run_at = n.next_slot_at + n.delay
FROM unnest(%(job_ids)s::uuid[], %(last)s::timestamptz[], %(next)s::timestamptz[], %(delays)s::interval[])
     AS n (job_id, last_slot_at, next_slot_at, delay)
WHERE jobs.job_id = n.job_id AND jobs.last_slot_at < n.last_slot_at;

-- name: show_fired
-- A job whose slots were all skipped shows its next one too. Locked in one order for everybody: a batch that ends runs
-- locks the same rows.
WITH locked AS MATERIALIZED (
    SELECT job_id FROM job_status WHERE job_id = ANY(%(job_ids)s::uuid[]) ORDER BY job_id FOR NO KEY UPDATE)
UPDATE job_status
SET last_scheduled_at = greatest(last_scheduled_at, n.scheduled_at), dirty_at = coalesce(dirty_at, %(now)s),
    missed_slots = missed_slots + n.missed, missed_at = coalesce(n.missed_at, job_status.missed_at)
FROM unnest(%(job_ids)s::uuid[], %(scheduled)s::timestamptz[], %(missed)s::bigint[], %(missed_at)s::timestamptz[])
     AS n (job_id, scheduled_at, missed, missed_at)
JOIN locked USING (job_id)
WHERE job_status.job_id = n.job_id;

-- name: insert_skips
INSERT INTO skips (job_id, owner, job_name, labels, first_at, last_at, count, reason, recorded_at)
SELECT j.job_id, j.owner, j.name, j.labels, n.first_at, n.last_at, n.count, n.reason, %(now)s
FROM unnest(%(job_ids)s::uuid[], %(firsts)s::timestamptz[], %(lasts)s::timestamptz[], %(counts)s::bigint[],
            %(reasons)s::skip_reason[]) AS n (job_id, first_at, last_at, count, reason)
JOIN jobs j ON j.job_id = n.job_id;

-- name: park
-- A job that cannot be evaluated stops alone; the sentence becomes its condition.
WITH parked AS (
    UPDATE jobs SET parked = %(sentence)s, next_slot_at = NULL, next_run_at = NULL
    WHERE job_id = %(job_id)s
    RETURNING job_id, declared)
UPDATE job_status SET dirty_at = %(now)s, urgent = true
FROM parked WHERE job_status.job_id = parked.job_id AND parked.declared;
