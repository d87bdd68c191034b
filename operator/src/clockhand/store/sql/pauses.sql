-- name: failures
-- For jobs that the caller has locked; a statement of its own, so that it sees whatever was stored before that lock.
SELECT job_id, consecutive_failures FROM job_status WHERE job_id = ANY(%(job_ids)s::uuid[]);

-- name: lock_firing
-- Jobs for which a slot comes: only those have something to pause. In one order for everybody.
SELECT j.job_id, j.name, j.generation, s.spec::text AS spec
FROM jobs j JOIN job_specs s USING (job_id, spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[]) AND j.next_run_at IS NOT NULL
ORDER BY j.job_id
FOR UPDATE OF j;

-- name: lock_paused
-- One that was parked while it was paused stays as it is: its next edit ends both.
SELECT j.job_id, j.owner, j.name, j.generation, j.created_at, j.last_slot_at, s.spec::text AS spec
FROM jobs j JOIN job_specs s USING (job_id, spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[]) AND j.paused_at IS NOT NULL AND j.deleted_at IS NULL AND j.parked IS NULL
ORDER BY j.job_id
FOR UPDATE OF j;

-- name: lock_status
-- Jobs come before status rows in the order of locks, and no run is locked behind these.
SELECT job_id, consecutive_failures, last_manual_success_at IS NOT NULL AS succeeded_by_hand, conditions
FROM job_status
WHERE job_id = ANY(%(job_ids)s::uuid[])
ORDER BY job_id
FOR UPDATE;

-- name: last_dead
-- The newest Dead run of each job, for the sentence: one index probe a job and week, newest week first.
SELECT n.job_id, last.name, last.reason
FROM unnest(%(job_ids)s::uuid[]) AS n (job_id)
CROSS JOIN LATERAL (
    SELECT h.name, h.reason FROM run_history h
    WHERE h.job_id = n.job_id AND h.state = 'Dead'
    ORDER BY h.scheduled_at DESC LIMIT 1) AS last;

-- name: pause
-- The high-water mark stays: what falls due from here on is counted from it when the pause ends.
UPDATE jobs SET paused_at = %(now)s, next_slot_at = NULL, next_run_at = NULL
WHERE job_id = ANY(%(job_ids)s::uuid[]);

-- name: resume
-- Never retroactive: slots count from now on.
UPDATE jobs
SET paused_at = NULL, last_slot_at = greatest(jobs.last_slot_at, %(now)s), next_slot_at = n.next_slot_at,
    next_run_at = n.next_run_at
FROM unnest(%(job_ids)s::uuid[], %(next_slots)s::timestamptz[], %(next_runs)s::timestamptz[])
     AS n (job_id, next_slot_at, next_run_at)
WHERE jobs.job_id = n.job_id;

-- name: forget_failures
-- A fresh count; the caller has locked the rows.
UPDATE job_status SET consecutive_failures = 0
WHERE job_id = ANY(%(job_ids)s::uuid[]) AND consecutive_failures > 0;

-- name: forget_success
-- A manual success ends the pause that begins now only if it is stored after it: the row's lock decides which came first,
-- and no clock. The caller has it.
UPDATE job_status SET last_manual_success_at = NULL
WHERE job_id = ANY(%(job_ids)s::uuid[]) AND last_manual_success_at IS NOT NULL;

-- name: resumable
-- Pauses that a manual run has ended, and a dead process left.
SELECT j.job_id
FROM jobs j JOIN job_status s USING (job_id)
WHERE j.shard = ANY(%(shards)s::smallint[]) AND j.paused_at IS NOT NULL AND j.parked IS NULL AND j.deleted_at IS NULL
  AND s.last_manual_success_at IS NOT NULL
LIMIT %(limit)s;
