-- name: lock_over
-- One-shots of which nothing comes any more: those that no instant was set for, and those whose instant has come. Two
-- index probes a shard, and none while the clock has jumped and nobody has confirmed it: what is deleted does not come
-- back. Somebody else's row is looked at again in the next pass; a run by hand is made under this lock.
WITH unset AS MATERIALIZED (
    SELECT found.job_id
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    JOIN installation ON clock_step IS NULL
    CROSS JOIN LATERAL (
        SELECT job_id FROM jobs
        WHERE jobs.shard = mine.shard AND ttl_seconds IS NOT NULL AND next_run_at IS NULL AND expires_at IS NULL
          AND (NOT declared OR %(objects)s) AND deleted_at IS NULL AND NOT suspended AND paused_at IS NULL AND parked IS NULL
          AND NOT EXISTS (SELECT FROM live_runs WHERE live_runs.job_id = jobs.job_id)
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED) AS found
    LIMIT %(limit)s),
due AS MATERIALIZED (
    SELECT found.job_id
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    JOIN installation ON clock_step IS NULL
    CROSS JOIN LATERAL (
        SELECT job_id FROM jobs
        WHERE jobs.shard = mine.shard AND ttl_seconds IS NOT NULL AND next_run_at IS NULL AND expires_at <= %(now)s
          AND (NOT declared OR %(objects)s) AND deleted_at IS NULL AND NOT suspended AND paused_at IS NULL AND parked IS NULL
        ORDER BY expires_at
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED) AS found
    LIMIT %(limit)s)
SELECT job_id FROM unset UNION ALL SELECT job_id FROM due;

-- name: settle
-- When each of the locked jobs expires: its time counts from the end of its last run or the record of its skipped slot,
-- or, where the slot of this spec is neither, from the edit that left it without one: what ended before that was another's.
-- While a run is live nothing is known. One that has expired comes back at `again`, should its object be there still. A
-- statement of its own, after the lock, so that it sees whatever was stored before it.
WITH judged AS (
    SELECT j.job_id,
           EXISTS (SELECT FROM live_runs WHERE live_runs.job_id = j.job_id) AS live,
           greatest(ended.at, skipped.at, CASE WHEN NOT slot.decided THEN j.last_slot_at END)
               + make_interval(secs => j.ttl_seconds) AS expires_at
    FROM jobs j JOIN job_specs s USING (job_id, spec_id)
    CROSS JOIN LATERAL (SELECT (s.spec ->> 'at')::timestamptz AS at) AS own
    CROSS JOIN LATERAL (
        SELECT EXISTS (SELECT FROM run_history h
                       WHERE h.job_id = j.job_id AND h.scheduled_at = own.at AND h.kind = 'Slot')
            OR EXISTS (SELECT FROM skips k WHERE k.job_id = j.job_id AND k.last_at = own.at) AS decided) AS slot
    CROSS JOIN LATERAL (
        SELECT max(newest.finished_at) AS at
        FROM (SELECT finished_at FROM run_history h WHERE h.job_id = j.job_id
              ORDER BY scheduled_at DESC LIMIT 100) AS newest) AS ended
    CROSS JOIN LATERAL (
        SELECT max(newest.recorded_at) AS at
        FROM (SELECT recorded_at FROM skips k WHERE k.job_id = j.job_id
              ORDER BY last_at DESC LIMIT 100) AS newest) AS skipped
    WHERE j.job_id = ANY(%(job_ids)s::uuid[]))
UPDATE jobs
SET expires_at = CASE WHEN judged.live THEN NULL
                      WHEN judged.expires_at <= %(now)s THEN %(again)s
                      ELSE judged.expires_at END
FROM judged
WHERE jobs.job_id = judged.job_id
RETURNING jobs.job_id, jobs.owner, jobs.name, jobs.declared, jobs.resource_version,
          NOT judged.live AND judged.expires_at <= %(now)s AS expired;
