-- name: turn
-- One replica at a time, a batch at a time: the lock goes with the transaction, whatever becomes of the process.
SELECT pg_try_advisory_xact_lock(hashtext('clockhand.zones')::bigint) AS held;

-- name: standing
SELECT zone_version, clock_step IS NOT NULL AS doubted,
       EXISTS (SELECT FROM replicas
               WHERE coalesce(replicas.zone_version, '') < %(version)s
                 AND last_seen > now() - coalesce(clock_step, '0') - make_interval(secs => %(lease)s)) AS older
FROM installation;

-- name: page
-- Jobs whose slots follow zone data, in the order of the index. One that is due goes on as it is.
SELECT zone, job_id
FROM jobs
WHERE zone IS NOT NULL AND (zone, job_id) > (%(zone)s, %(after)s)
ORDER BY zone, job_id
LIMIT %(limit)s;

-- name: lock
-- In one order for everybody, so that two transactions cannot wait for each other. No slot comes for a job that is
-- suspended, paused, parked, deleted or at its end: nothing of it moves.
SELECT j.job_id, j.owner, j.name, j.created_at, j.last_slot_at, j.next_slot_at, s.spec::text AS spec
FROM jobs j JOIN job_specs s USING (job_id, spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[]) AND j.next_slot_at > %(now)s
ORDER BY j.job_id
FOR UPDATE OF j;

-- name: move
-- The mark rises where slots were passed over, and the object shows another time.
WITH moved AS (
    UPDATE jobs
    SET next_slot_at = n.next_slot_at, next_run_at = n.next_slot_at + n.delay,
        last_slot_at = greatest(jobs.last_slot_at, n.passed)
    FROM unnest(%(job_ids)s::uuid[], %(next_slots)s::timestamptz[], %(delays)s::interval[], %(passed)s::timestamptz[])
         AS n (job_id, next_slot_at, delay, passed)
    WHERE jobs.job_id = n.job_id
    RETURNING jobs.job_id, jobs.declared),
locked AS MATERIALIZED (
    SELECT job_id FROM job_status WHERE job_id IN (SELECT job_id FROM moved WHERE declared) ORDER BY job_id FOR NO KEY UPDATE)
UPDATE job_status SET dirty_at = coalesce(dirty_at, %(now)s)
FROM locked WHERE job_status.job_id = locked.job_id;

-- name: store
UPDATE installation SET zone_version = %(version)s WHERE coalesce(zone_version, '') < %(version)s;
