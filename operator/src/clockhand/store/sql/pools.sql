-- name: settings
-- Also of pools that were deleted: their workers have runs to report on.
SELECT pool, owner, service_account, allowed_owners, dispatch, lease_seconds, heartbeat_seconds, kafka_error,
       deleted_at IS NOT NULL AS is_deleted
FROM pools
WHERE pool = ANY(%(pools)s::text[]);

-- name: add
-- A tenant's pool exists once a worker of it asks.
INSERT INTO pools (pool, owner, name) VALUES (%(pool)s, %(owner)s, %(name)s) ON CONFLICT DO NOTHING;

-- name: set_up
UPDATE pools SET lease_seconds = %(lease_seconds)s, heartbeat_seconds = %(heartbeat_seconds)s WHERE pool = %(pool)s;

-- name: waiting
-- Owners with Queued runs in a pool, within spans of owners, those of the first lap first: one probe an owner, however
-- many runs each of them has there.
WITH RECURSIVE owners (handler, owner, bound, lap, number) AS (
    SELECT asked.handler, first.owner, asked.high, asked.lap, 1
    FROM unnest(%(handlers)s::text[], %(lows)s::text[], %(highs)s::text[], %(laps)s::int[])
         AS asked (handler, low, high, lap)
    CROSS JOIN LATERAL (
        SELECT owner FROM live_runs r
        WHERE r.state = 'Queued' AND r.pool = %(pool)s AND r.pool IS NOT NULL AND r.handler = asked.handler
          AND r.owner >= asked.low COLLATE "C" AND r.owner < asked.high COLLATE "C"
        ORDER BY r.owner LIMIT 1) AS first
    UNION ALL
    SELECT owners.handler, following.owner, owners.bound, owners.lap, owners.number + 1
    FROM owners
    CROSS JOIN LATERAL (
        SELECT owner FROM live_runs r
        WHERE r.state = 'Queued' AND r.pool = %(pool)s AND r.pool IS NOT NULL AND r.handler = owners.handler
          AND r.owner > owners.owner AND r.owner < owners.bound COLLATE "C"
        ORDER BY r.owner LIMIT 1) AS following
    WHERE owners.number < %(limit)s)
SELECT handler, owner FROM owners ORDER BY lap, number LIMIT %(limit)s;

-- name: lock_queued
-- The best of each owner's Queued runs, as many as it is given; those that somebody else is about to take are passed over.
SELECT best.run_id, asked.handler
FROM unnest(%(handlers)s::text[], %(owners)s::text[], %(counts)s::bigint[]) AS asked (handler, owner, count)
CROSS JOIN LATERAL (
    SELECT run_id FROM live_runs r
    WHERE r.state = 'Queued' AND r.pool = %(pool)s AND r.pool IS NOT NULL
      AND r.handler = asked.handler AND r.owner = asked.owner
    ORDER BY r.queue_at
    LIMIT asked.count
    FOR UPDATE SKIP LOCKED) AS best;

-- name: assign
-- Queued runs to workers; a worker that is NULL: to whoever presents the token. The token is random, so that no two claims
-- are ever alike, and every later write about the attempt names it.
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Claimed', reason = NULL, message = NULL, attempt = r.attempt + 1, token = n.token, worker = n.worker,
        fencing = (installation.epoch::bigint << 40) + nextval('claim_count'), claimed_at = %(now)s,
        launched_at = coalesce(r.launched_at, %(now)s), started_at = NULL, node = NULL,
        lease_until = %(now)s + make_interval(secs => %(lease)s),
        deadline_at = %(now)s + make_interval(secs => r.attempt_timeout)
    -- nothing is claimed on a promoted database until its epoch is raised
    FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(workers)s::text[]) AS n (run_id, token, worker),
         (SELECT epoch FROM installation
          WHERE timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)) AS installation
    WHERE r.run_id = n.run_id AND r.state = 'Queued'
    RETURNING r.*),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT r.run_id, r.token, r.name, r.job_name, r.owner, r.handler, r.kind::text AS kind, r.scheduled_at, r.attempt,
       r.fencing, r.attempt_timeout, coalesce(r.payload, s.payload, 'null')::text AS payload, r.worker
FROM moved r JOIN job_specs s USING (spec_id);
