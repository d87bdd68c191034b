-- name: weeks_in_use
-- Weeks in which a live run is scheduled: it will need its partition to end in. And those of open backfills: what is not in
-- history any more would be made anew.
SELECT DISTINCT (date_trunc('week', scheduled_at, 'UTC') AT TIME ZONE 'UTC')::date AS monday
FROM live_runs WHERE scheduled_at < %(before)s
UNION
SELECT week.at::date
FROM backfills CROSS JOIN LATERAL generate_series(date_trunc('week', from_at, 'UTC') AT TIME ZONE 'UTC',
                                                  to_at AT TIME ZONE 'UTC', '1 week') AS week (at)
WHERE ended_at IS NULL AND from_at < %(before)s AND week.at < %(before)s::timestamptz AT TIME ZONE 'UTC';

-- name: detached
-- Weeks that were detached and then could not be dropped: nobody reads them, and one of them made again would collide.
SELECT relname AS name FROM pg_class
WHERE relkind = 'r' AND NOT relispartition AND relnamespace = current_schema()::regnamespace
  AND relname ~ '^(run_history|attempts|skips)_[0-9]{4}w[0-9]{2}$';

-- name: old_keys
DELETE FROM idempotency_keys
WHERE (scope, key) IN (SELECT scope, key FROM idempotency_keys WHERE stored_at < %(before)s LIMIT %(limit)s);

-- name: old_answers
DELETE FROM kept_answers
WHERE (owner, key) IN (SELECT owner, key FROM kept_answers WHERE stored_at < %(before)s LIMIT %(limit)s);

-- name: old_audit
DELETE FROM audit
WHERE audit_id IN (SELECT audit_id FROM audit WHERE at < %(before)s ORDER BY audit_id LIMIT %(limit)s);

-- name: deleted_jobs
-- A deleted job's row stays as long as its history may be asked for by the job's name. Its status goes with it. A job that
-- somebody holds may be about to come back: it is looked at again an hour later. OFFSET 0 asks for the
-- live runs of these jobs, and does not read all there are.
WITH old AS MATERIALIZED (
    SELECT job_id FROM jobs
    WHERE deleted_at < %(before)s
      AND NOT EXISTS (SELECT FROM live_runs WHERE live_runs.job_id = jobs.job_id OFFSET 0)
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED),
gone AS (
    DELETE FROM jobs USING old
    WHERE jobs.job_id = old.job_id AND jobs.deleted_at < %(before)s
    RETURNING jobs.job_id)
DELETE FROM job_status USING gone WHERE job_status.job_id = gone.job_id;

-- name: old_specs
-- Specs that no job has now and no live run refers to, replaced, or left by their job, longer ago than runs are kept.
DELETE FROM job_specs
WHERE spec_id IN (
    SELECT old.spec_id FROM job_specs old
    WHERE old.stored_at < %(before)s
      AND NOT EXISTS (SELECT FROM jobs WHERE jobs.job_id = old.job_id AND jobs.spec_id = old.spec_id)
      AND NOT EXISTS (SELECT FROM live_runs WHERE live_runs.job_id = old.job_id AND live_runs.spec_id = old.spec_id)
      AND (NOT EXISTS (SELECT FROM jobs WHERE jobs.job_id = old.job_id)
           OR EXISTS (SELECT FROM job_specs newer
                      WHERE newer.job_id = old.job_id AND newer.spec_id > old.spec_id AND newer.stored_at < %(before)s))
    LIMIT %(limit)s);

-- name: old_backfills
DELETE FROM backfills
WHERE backfill_id IN (
    SELECT backfill_id FROM backfills
    WHERE ended_at IS NOT NULL AND ended_at < %(before)s
    ORDER BY ended_at LIMIT %(limit)s);
