-- name: job_named
-- The newest of that name that is not deleted.
SELECT job_id FROM jobs
WHERE owner = %(owner)s AND name = %(name)s AND deleted_at IS NULL
ORDER BY created_at DESC
LIMIT 1;

-- name: lock_job
-- So that requests and slots of one job come one after another.
SELECT job_id, name, parked, spec_id, created_at, next_slot_at
FROM jobs
WHERE job_id = %(job_id)s AND owner = %(owner)s AND deleted_at IS NULL
FOR UPDATE;

-- name: spec
-- A statement of its own, after the lock: an edit that the lock waited for brought a spec which the locking one cannot see.
SELECT spec::text AS spec FROM job_specs WHERE spec_id = %(spec_id)s;

-- name: claim_key
-- The first request stores the run; a later one with the same key finds it.
INSERT INTO idempotency_keys (scope, key, run_id, stored_at)
VALUES (%(scope)s, %(key)s, %(run_id)s, %(now)s)
ON CONFLICT (scope, key) DO UPDATE SET key = excluded.key
RETURNING run_id;

-- name: name_taken
SELECT EXISTS (SELECT FROM live_runs WHERE owner = %(owner)s AND name = %(name)s AND kind <> 'Slot')
    OR EXISTS (SELECT FROM run_history WHERE owner = %(owner)s AND name = %(name)s AND kind <> 'Slot')
    OR EXISTS (SELECT FROM backfills WHERE owner = %(owner)s AND name = %(name)s) AS taken;

-- name: lock_job_of_run
-- The job comes before its runs in the order of locks; firing and the mirror keep to it as well.
SELECT job_id FROM jobs
WHERE job_id = (SELECT job_id FROM live_runs WHERE run_id = %(run_id)s AND owner = %(owner)s
                UNION ALL
                SELECT job_id FROM run_history
                WHERE run_id = %(run_id)s AND scheduled_at = %(scheduled_at)s AND owner = %(owner)s
                LIMIT 1)
FOR UPDATE;

-- name: lock_live
SELECT run_id, job_id, state::text AS state
FROM live_runs WHERE run_id = %(run_id)s AND owner = %(owner)s
FOR UPDATE;

-- name: ended
SELECT run_id, job_id, state::text AS state
FROM run_history WHERE run_id = %(run_id)s AND scheduled_at = %(scheduled_at)s AND owner = %(owner)s;

-- name: retry_now
-- A Retrying run does not wait for the end of its back-off.
UPDATE live_runs SET ready_at = %(now)s WHERE run_id = %(run_id)s AND state = 'Retrying';

-- name: audit
INSERT INTO audit (at, owner, actor, action, job_id, run_id, detail)
VALUES (%(now)s, %(owner)s, %(actor)s, %(action)s, %(job_id)s, %(run_id)s, %(detail)s);
