-- name: dirty
-- Objects of the given shards whose status should be written: urgent news, then the oldest; an index probe a shard each.
-- A row's xmin names its version: a change that comes while the patch is on its way has another.
WITH urgent AS (
    SELECT picked.*
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT job_id, xmin::text AS version, urgent, written_digest, last_scheduled_at, last_success_at,
               consecutive_failures, conditions, dirty_at
        FROM job_status
        WHERE job_status.shard = mine.shard AND dirty_at IS NOT NULL AND urgent
        ORDER BY dirty_at
        LIMIT %(batch)s) AS picked
    ORDER BY picked.dirty_at
    LIMIT %(batch)s),
usual AS (
    SELECT picked.*
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT job_id, xmin::text AS version, urgent, written_digest, last_scheduled_at, last_success_at,
               consecutive_failures, conditions, dirty_at
        FROM job_status
        WHERE job_status.shard = mine.shard AND dirty_at IS NOT NULL AND NOT urgent
          AND dirty_at <= %(settled)s
          AND (written_at IS NULL OR written_at <= %(written_before)s)
        ORDER BY dirty_at
        LIMIT %(usual)s) AS picked
    ORDER BY picked.dirty_at
    LIMIT %(usual)s)
SELECT s.job_id, s.version, s.urgent, s.written_digest, s.last_scheduled_at, s.last_success_at,
       s.consecutive_failures, s.conditions, j.owner, j.name, j.generation, j.next_run_at,
       j.next_run_at IS NULL AND NOT j.suspended AND j.paused_at IS NULL AND j.parked IS NULL AS finished,
       j.parked, j.deleted_at, j.declared,
       (SELECT count(*) FROM live_runs r WHERE r.job_id = s.job_id) AS live
FROM (SELECT * FROM urgent UNION ALL SELECT * FROM usual) AS s
JOIN jobs j USING (job_id)
ORDER BY s.urgent DESC, s.dirty_at;

-- name: written
-- A row that changed in the meantime stays dirty and is written again, after its pause.
UPDATE job_status
SET written_at = CASE WHEN n.patched THEN %(now)s ELSE job_status.written_at END,
    written_digest = n.digest,
    dirty_at = CASE WHEN job_status.xmin::text = n.version THEN NULL ELSE job_status.dirty_at END,
    urgent = job_status.urgent AND job_status.xmin::text <> n.version
FROM unnest(%(job_ids)s::uuid[], %(versions)s::text[], %(digests)s::bytea[], %(patched)s::boolean[])
     AS n (job_id, version, digest, patched)
WHERE job_status.job_id = n.job_id;

-- name: postponed
-- Not written now: as if it had been, so that it does not stand in the way of others.
UPDATE job_status SET written_at = %(now)s, urgent = false
WHERE job_id = ANY(%(job_ids)s::uuid[]);
