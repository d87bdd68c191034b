-- name: renew
-- Every attempt that workers say they have, locked in one order for everybody. The first time makes it Running; after that
-- only the lease moves, which is in no index. What is not among the rows is somebody else's or over.
-- Runs are found by their ids, here and below: pool and worker are compared in a way that no index serves.
WITH mine AS MATERIALIZED (
    SELECT r.run_id, r.state, n.lease
    FROM live_runs r
    JOIN unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(pools)s::text[], %(workers)s::text[], %(leases)s::int[])
         AS n (run_id, token, pool, worker, lease)
         ON r.run_id = n.run_id AND r.token = n.token AND r.pool IS NOT DISTINCT FROM n.pool
         AND r.worker IS NOT DISTINCT FROM n.worker
    WHERE r.state IN ('Claimed', 'Running', 'Stopping')
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r),
kept AS (
    UPDATE live_runs r
    SET lease_until = %(now)s + make_interval(secs => mine.lease),
        state = CASE WHEN mine.state = 'Claimed' THEN 'Running' ELSE mine.state END,
        started_at = coalesce(r.started_at, r.claimed_at)
    FROM mine WHERE r.run_id = mine.run_id
    RETURNING r.run_id, r.token, r.pool, r.worker, r.state, r.stop_reason, mine.state = 'Claimed' AS begins),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM kept WHERE begins HAVING count(*) > 0)
SELECT pool, worker, run_id, token, stop_reason FROM kept;

-- name: unlisted
-- Attempts that workers were given and do not know of, since the answer was lost on its way. Given again, their leases
-- begin anew, but not for ever: what is not known by then was dropped, and is for others once its lease is over.
WITH lost AS MATERIALIZED (
    SELECT r.run_id, beat.lease
    FROM unnest(%(pools)s::text[], %(workers)s::text[], %(leases)s::int[]) AS beat (pool, worker, lease)
    JOIN live_runs r ON r.pool = beat.pool AND r.worker = beat.worker
    CROSS JOIN installation
    WHERE r.state = 'Claimed' AND r.claimed_at <= %(claimed_before)s
      AND greatest(r.claimed_at, installation.served_since) > %(now)s - make_interval(secs => beat.lease)
      AND NOT EXISTS (SELECT FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[]) AS held (run_id, token)
                      WHERE held.run_id = r.run_id AND held.token = r.token)
    ORDER BY r.run_id
    LIMIT %(limit)s
    FOR NO KEY UPDATE OF r)
UPDATE live_runs r
SET lease_until = %(now)s + make_interval(secs => lost.lease)
FROM lost, job_specs s
WHERE r.run_id = lost.run_id AND s.spec_id = r.spec_id
RETURNING r.run_id, r.token, r.name, r.job_name, r.owner, r.handler, r.kind::text AS kind, r.scheduled_at, r.attempt,
          r.fencing, r.attempt_timeout, coalesce(r.payload, s.payload, 'null')::text AS payload, r.worker;

-- name: start
-- Tokens that came by a message: the first worker to present one has the attempt, and may present it again. Its time
-- counts from the first time.
WITH mine AS MATERIALIZED (
    SELECT r.run_id, n.worker, n.lease
    FROM live_runs r
    JOIN unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(pools)s::text[], %(workers)s::text[], %(leases)s::int[])
         AS n (run_id, token, pool, worker, lease)
         ON r.run_id = n.run_id AND r.token = n.token AND r.pool IS NOT DISTINCT FROM n.pool
    WHERE r.state IN ('Claimed', 'Running') AND (r.worker IS NULL OR r.worker = n.worker)
    ORDER BY r.run_id
    FOR UPDATE OF r)
UPDATE live_runs r
SET worker = mine.worker, lease_until = %(now)s + make_interval(secs => mine.lease),
    started_at = coalesce(r.started_at, %(now)s),
    deadline_at = CASE WHEN r.worker IS NULL THEN %(now)s + make_interval(secs => r.attempt_timeout)
                       ELSE r.deadline_at END
FROM mine, job_specs s
WHERE r.run_id = mine.run_id AND s.spec_id = r.spec_id
RETURNING r.run_id, r.token, r.name, r.job_name, r.owner, r.handler, r.kind::text AS kind, r.scheduled_at, r.attempt,
          r.fencing, r.attempt_timeout, coalesce(r.payload, s.payload, 'null')::text AS payload, r.worker;

-- name: release
-- Claimed and never begun back to Queued, in its old place. The attempt number is spent, nothing else; nor was the run
-- there on time, where this was its first attempt.
WITH mine AS MATERIALIZED (
    SELECT r.run_id, r.token
    FROM live_runs r
    JOIN unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(pools)s::text[], %(workers)s::text[])
         AS n (run_id, token, pool, worker)
         ON r.run_id = n.run_id AND r.token = n.token AND r.pool IS NOT DISTINCT FROM n.pool
         AND r.worker IS NOT DISTINCT FROM n.worker
    WHERE r.state = 'Claimed'
    ORDER BY r.run_id
    FOR UPDATE OF r),
moved AS (
    UPDATE live_runs r
    SET state = 'Queued', token = NULL, worker = NULL, lease_until = NULL, deadline_at = NULL, started_at = NULL,
        reason = NULL, message = NULL,
        launched_at = CASE WHEN r.launched_at >= r.claimed_at THEN NULL ELSE r.launched_at END
    FROM mine WHERE r.run_id = mine.run_id
    RETURNING r.run_id, mine.token, r.state, r.pool, r.handler),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id, token, pool, handler FROM moved;

-- name: lock_open
-- The runs whose attempts are about to end otherwise than well, locked in one order for everybody; a stale token finds
-- nothing, and neither does another worker or another pool.
SELECT r.run_id, r.job_id, r.owner, r.job_name, r.name, r.state::text AS state, r.attempt, r.failures, r.disruptions,
       r.token,
       r.stop_reason, r.scheduled_at, r.claimed_at, r.started_at, r.node, r.pool, r.worker,
       job_specs.spec::text AS spec, job_specs.followed, jobs.deleted_at IS NOT NULL AS job_is_deleted
FROM live_runs r
JOIN unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(pools)s::text[], %(workers)s::text[])
     AS n (run_id, token, pool, worker)
     ON r.run_id = n.run_id AND r.token = n.token AND r.pool IS NOT DISTINCT FROM n.pool
         AND r.worker IS NOT DISTINCT FROM n.worker
JOIN job_specs ON job_specs.spec_id = r.spec_id
JOIN jobs ON jobs.job_id = r.job_id
WHERE r.state IN ('Claimed', 'Running', 'Stopping')
ORDER BY r.run_id
FOR UPDATE OF r;

-- name: recall
-- What is kept of attempts that are not open any more: an end that a worker reported is known by its token.
SELECT n.run_id, n.token, coalesce(r.state, h.state)::text AS state,
       coalesce(h.state = 'Succeeded' AND h.token = n.token AND h.worker = n.worker, false) AS succeeded,
       (SELECT a.outcome FROM attempts a
        WHERE a.run_id = n.run_id AND a.scheduled_at = n.scheduled_at AND a.token = n.token AND a.worker = n.worker
        LIMIT 1) AS outcome
FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(scheduled)s::timestamptz[], %(workers)s::text[])
     AS n (run_id, token, scheduled_at, worker)
LEFT JOIN live_runs r ON r.run_id = n.run_id
LEFT JOIN run_history h ON h.run_id = n.run_id AND h.scheduled_at = n.scheduled_at;

-- name: standing
-- Who has open attempts, and how their leases stand: one row a worker, and one a pool for messages that nobody has
-- started. This reads every open attempt of every pool.
SELECT r.pool, r.worker, count(*) AS held, max(r.lease_until) AS last_lease,
       count(*) FILTER (WHERE r.lease_until <= %(now)s) AS lapsed,
       count(*) FILTER (WHERE r.lease_until <= %(now)s - make_interval(secs => coalesce(p.lease_seconds, 90))) AS forgotten,
       count(*) FILTER (WHERE r.deadline_at <= %(now)s AND r.state <> 'Stopping' AND r.worker IS NOT NULL) AS overdue,
       coalesce(p.lease_seconds, 90) AS lease, coalesce(p.heartbeat_seconds, 30) AS heartbeat,
       greatest(p.rescue_from, installation.served_since + make_interval(secs => coalesce(p.lease_seconds, 90)))
           AS rescue_from
FROM live_runs r
LEFT JOIN pools p USING (pool)
CROSS JOIN installation
WHERE r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NOT NULL
GROUP BY r.pool, r.worker, p.pool, installation.served_since;

-- name: lock_lapsed
-- Attempts of these workers whose leases have lapsed, and what nobody has started in time.
SELECT r.run_id, r.job_id, r.owner, r.job_name, r.name, r.state::text AS state, r.attempt, r.failures, r.disruptions,
       r.token,
       r.stop_reason, r.scheduled_at, r.claimed_at, r.started_at, r.node, r.pool, r.worker,
       job_specs.spec::text AS spec, job_specs.followed, jobs.deleted_at IS NOT NULL AS job_is_deleted
FROM live_runs r
JOIN job_specs ON job_specs.spec_id = r.spec_id
JOIN jobs ON jobs.job_id = r.job_id
WHERE r.pool = %(pool)s AND (r.worker = ANY(%(workers)s::text[]) OR r.worker IS NULL)
  AND r.state IN ('Claimed', 'Running', 'Stopping') AND r.lease_until <= %(now)s
ORDER BY r.run_id
LIMIT %(limit)s
FOR UPDATE OF r SKIP LOCKED;

-- name: overdue
-- Attempts of these workers past their time-out, locked, so that one which ends at this moment is left alone.
SELECT run_id
FROM live_runs
WHERE pool = %(pool)s AND worker = ANY(%(workers)s::text[]) AND state IN ('Claimed', 'Running')
  AND deadline_at <= %(now)s
ORDER BY run_id
LIMIT %(limit)s
FOR UPDATE SKIP LOCKED;

-- name: wait_longer
-- Most workers of a pool fell silent at once: the fault may be on this side of the line.
UPDATE pools SET rescue_from = %(now)s + make_interval(secs => lease_seconds)
WHERE pool = %(pool)s AND rescue_from <= %(now)s;
