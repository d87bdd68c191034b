-- name: all
-- Every pool of a WorkerPool object with what waits for its workers and what they have, each counted up to a limit: how many
-- more there are changes nothing. What nobody has started yet waits too, though it is on its way as a message.
SELECT p.pool, p.object_uid, p.service_account, p.allowed_owners, p.handlers, p.dispatch, p.lease_seconds,
       p.heartbeat_seconds, p.kafka_error, waiting.count AS backlog,
       greatest(extract(epoch FROM %(now)s - waiting.oldest), 0)::float8 AS oldest_seconds, taken.count AS running
FROM pools p
CROSS JOIN LATERAL (
    SELECT count(*), min(since) AS oldest
    FROM ((SELECT queue_at + priority * interval '10 seconds' AS since
           FROM live_runs
           WHERE pool = p.pool AND state = 'Queued'
           LIMIT %(limit)s)
          UNION ALL
          (SELECT claimed_at
           FROM live_runs
           WHERE pool = p.pool AND worker IS NULL AND state IN ('Claimed', 'Running', 'Stopping')
           LIMIT %(limit)s)) AS each) AS waiting
CROSS JOIN LATERAL (
    SELECT count(*)
    FROM (SELECT FROM live_runs
          WHERE pool = p.pool AND worker IS NOT NULL AND state IN ('Claimed', 'Running', 'Stopping')
          LIMIT %(limit)s) AS each) AS taken
WHERE p.object_uid IS NOT NULL AND p.deleted_at IS NULL
  AND (%(owners)s::text[] IS NULL OR p.owner = ANY(%(owners)s::text[]))
ORDER BY p.pool;

-- name: found
-- How the pools that jobs name are set up, as far as the jobs are told.
SELECT pool, owner, allowed_owners, handlers
FROM pools
WHERE pool = ANY(%(pools)s::text[]) AND deleted_at IS NULL;

-- name: store
INSERT INTO pools (pool, owner, name, object_uid, resource_version, service_account, allowed_owners, handlers, dispatch,
                   lease_seconds, heartbeat_seconds)
VALUES (%(pool)s, %(owner)s, %(name)s, %(object_uid)s, %(resource_version)s, %(service_account)s, %(allowed_owners)s,
        %(handlers)s, %(dispatch)s, %(lease_seconds)s, %(heartbeat_seconds)s)
ON CONFLICT (pool) DO UPDATE
SET object_uid = EXCLUDED.object_uid, resource_version = EXCLUDED.resource_version,
    service_account = EXCLUDED.service_account, allowed_owners = EXCLUDED.allowed_owners, handlers = EXCLUDED.handlers,
    dispatch = EXCLUDED.dispatch, lease_seconds = EXCLUDED.lease_seconds,
    heartbeat_seconds = EXCLUDED.heartbeat_seconds,
    kafka_error = CASE WHEN EXCLUDED.dispatch = 'Kafka' THEN pools.kafka_error END, deleted_at = NULL;

-- name: remove
UPDATE pools SET deleted_at = %(now)s
WHERE pool = ANY(%(pools)s::text[]) AND deleted_at IS NULL;

-- name: jobs_page
-- Of the page of all jobs of the cluster after a place, those with workers, and where the page ends; NULL pools means any.
WITH page AS MATERIALIZED (
    SELECT job_id, owner, name, pool, handler, generation
    FROM jobs
    WHERE (owner, name, job_id) > (%(owner)s, %(name)s, %(job_id)s) AND owner < 'k8s0' AND deleted_at IS NULL
      AND declared
    ORDER BY owner, name, job_id
    LIMIT %(size)s)
SELECT ends.owner AS last_owner, ends.name AS last_name, ends.job_id AS last_id, j.job_id, j.owner, j.pool, j.handler, j.generation, s.conditions
FROM (SELECT owner, name, job_id FROM page ORDER BY owner DESC, name DESC, job_id DESC LIMIT 1) AS ends
LEFT JOIN (page AS j JOIN job_status s USING (job_id))
       ON j.pool IS NOT NULL AND (%(pools)s::text[] IS NULL OR j.pool = ANY(%(pools)s::text[]));
