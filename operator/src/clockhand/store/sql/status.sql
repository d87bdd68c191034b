-- name: dirty
-- Objects of the given shards whose status should be written: urgent news, then the oldest; an index probe a shard each.
-- A row's xmin names its version: a change that comes while the patch is on its way has another.
WITH urgent AS (
    SELECT picked.*
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT job_id, xmin::text AS version, urgent, written_digest, last_scheduled_at, last_success_at,
               consecutive_failures, conditions, failed_run, failed_attempt, stuck_run, ill_runs, ill_run,
               missed_slots, missed_at, told, dirty_at
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
               consecutive_failures, conditions, failed_run, failed_attempt, stuck_run, ill_runs, ill_run,
               missed_slots, missed_at, told, dirty_at
        FROM job_status
        WHERE job_status.shard = mine.shard AND dirty_at IS NOT NULL AND NOT urgent
          AND dirty_at <= %(settled)s
          AND (written_at IS NULL OR written_at <= %(written_before)s)
        ORDER BY dirty_at
        LIMIT %(usual)s) AS picked
    ORDER BY picked.dirty_at
    LIMIT %(usual)s)
SELECT s.job_id, s.version, s.urgent, s.written_digest, s.last_scheduled_at, s.last_success_at,
       s.consecutive_failures, s.conditions, s.failed_run, s.failed_attempt, s.stuck_run, s.ill_runs, s.ill_run,
       s.missed_slots, s.missed_at, s.told, j.owner, j.name, j.generation, j.next_run_at,
       j.next_run_at IS NULL AND NOT j.suspended AND j.paused_at IS NULL AND j.parked IS NULL AS finished,
       j.parked, j.deleted_at, j.declared,
       (SELECT count(*) FROM live_runs r WHERE r.job_id = s.job_id) AS live
FROM (SELECT * FROM urgent UNION ALL SELECT * FROM usual) AS s
JOIN jobs j USING (job_id)
ORDER BY s.urgent DESC, s.dirty_at;

-- name: written
-- A row that changed in the meantime stays dirty and is written again, after its pause. Locked in one order for everybody.
WITH locked AS MATERIALIZED (
    SELECT job_id FROM job_status WHERE job_id = ANY(%(job_ids)s::uuid[]) ORDER BY job_id FOR NO KEY UPDATE)
UPDATE job_status
SET written_at = CASE WHEN n.patched THEN %(now)s ELSE job_status.written_at END,
    written_digest = n.digest,
    told = coalesce(n.told::jsonb, job_status.told),
    dirty_at = CASE WHEN job_status.xmin::text = n.version THEN NULL ELSE job_status.dirty_at END,
    urgent = job_status.urgent AND job_status.xmin::text <> n.version
FROM unnest(%(job_ids)s::uuid[], %(versions)s::text[], %(digests)s::bytea[], %(patched)s::boolean[], %(told)s::text[])
     AS n (job_id, version, digest, patched, told)
JOIN locked USING (job_id)
WHERE job_status.job_id = n.job_id;

-- name: postponed
-- Not written now: as if it had been, so that it does not stand in the way of others. Locked in the same order.
WITH locked AS MATERIALIZED (
    SELECT job_id FROM job_status WHERE job_id = ANY(%(job_ids)s::uuid[]) ORDER BY job_id FOR NO KEY UPDATE)
UPDATE job_status SET written_at = %(now)s, urgent = false
FROM locked WHERE job_status.job_id = locked.job_id;

-- name: note_failed
-- The first failed attempt after a success is news for the object's events. Noted last in its transaction and only where
-- nobody else writes the row just now: an event is not worth a wait, nor the risk of a deadlock.
UPDATE job_status
SET failed_at = %(now)s, failed_run = n.run_id, failed_attempt = n.attempt, dirty_at = coalesce(dirty_at, %(now)s)
FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[], %(attempts)s::int[]) AS n (job_id, run_id, attempt)
WHERE job_status.job_id = n.job_id
  AND job_status.job_id IN (
      SELECT s.job_id FROM job_status s JOIN jobs j USING (job_id)
      WHERE s.job_id = ANY(%(job_ids)s::uuid[]) AND j.declared AND (s.failed_at IS NULL OR s.last_success_at > s.failed_at)
      FOR NO KEY UPDATE OF s SKIP LOCKED);

-- name: note_stuck
-- The same for runs whose pods the API server refuses for now.
WITH stuck AS MATERIALIZED (
    SELECT s.job_id, r.run_id
    FROM live_runs r JOIN job_status s USING (job_id) JOIN jobs j USING (job_id)
    WHERE r.run_id = ANY(%(run_ids)s::uuid[]) AND r.state = 'Claimed' AND j.declared
      AND s.stuck_run IS DISTINCT FROM r.run_id
    FOR NO KEY UPDATE OF s SKIP LOCKED)
UPDATE job_status SET stuck_run = stuck.run_id, dirty_at = coalesce(dirty_at, %(now)s)
FROM stuck WHERE job_status.job_id = stuck.job_id;

-- name: facts_of_runs
-- What events say of some runs: where they stand, and how the named attempt, or the last one that did not end well, ended.
SELECT n.run_id, n.attempt AS asked, coalesce(live.name, old.name) AS name, coalesce(live.state, old.state)::text AS state,
       coalesce(live.reason, old.reason) AS reason, live.message, coalesce(live.attempt, old.attempt) AS attempts,
       ended.attempt, ended.reason AS ended_by, ended.exit_code
FROM unnest(%(run_ids)s::uuid[], %(instants)s::timestamptz[], %(attempts)s::int[]) AS n (run_id, scheduled_at, attempt)
LEFT JOIN live_runs live ON live.run_id = n.run_id
LEFT JOIN run_history old ON old.run_id = n.run_id AND old.scheduled_at = n.scheduled_at
LEFT JOIN LATERAL (SELECT attempt, reason, exit_code FROM attempts a
                   WHERE a.run_id = n.run_id AND a.scheduled_at = n.scheduled_at
                     AND (n.attempt IS NULL OR a.attempt = n.attempt)
                   ORDER BY attempt DESC LIMIT 1) AS ended ON true
WHERE coalesce(live.name, old.name) IS NOT NULL;
