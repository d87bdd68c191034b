-- name: of_owner
-- Ended runs of an owner in one state, oldest first; the keyset is the run id. From one to the next by a probe each: who takes
-- them for few would fetch them all, and sort them, for every page.
WITH RECURSIVE found (run_id, job_id, number) AS (
    (SELECT run_id, job_id, 1
     FROM run_history
     WHERE owner = %(owner)s AND state = %(state)s::run_state AND state <> 'Succeeded' AND run_id > %(after)s
       AND scheduled_at >= coalesce(%(since)s::timestamptz, '-infinity')
       AND scheduled_at <= coalesce(%(until)s::timestamptz, 'infinity')
       AND finished_at < %(ended_before)s
     ORDER BY run_id LIMIT 1)
    UNION ALL
    SELECT following.run_id, following.job_id, found.number + 1
    FROM found CROSS JOIN LATERAL (
        SELECT run_id, job_id
        FROM run_history
        WHERE owner = %(owner)s AND state = %(state)s::run_state AND state <> 'Succeeded' AND run_id > found.run_id
          AND scheduled_at >= coalesce(%(since)s::timestamptz, '-infinity')
          AND scheduled_at <= coalesce(%(until)s::timestamptz, 'infinity')
          AND finished_at < %(ended_before)s
        ORDER BY run_id LIMIT 1) AS following
    WHERE found.number < %(limit)s)
SELECT run_id, job_id FROM found;

-- name: of_job
-- The same of one job, or of all that had a name.
SELECT run_id, job_id
FROM run_history
WHERE owner = %(owner)s AND state = %(state)s::run_state AND state <> 'Succeeded' AND run_id > %(after)s
  AND scheduled_at >= coalesce(%(since)s::timestamptz, '-infinity')
  AND scheduled_at <= coalesce(%(until)s::timestamptz, 'infinity')
  AND finished_at < %(ended_before)s
  AND coalesce(job_name = %(job_name)s, true) AND coalesce(job_id = %(job_id)s, true)
ORDER BY run_id
LIMIT %(limit)s;

-- name: lock_jobs
-- The jobs come before their runs in the order of locks.
SELECT job_id FROM jobs WHERE job_id = ANY(%(job_ids)s::uuid[]) ORDER BY job_id FOR UPDATE;

-- name: specs
-- Of jobs that there are, and none whose template is of a class that is another by now, or is gone.
SELECT h.run_id, s.spec::text AS spec
FROM run_history h
JOIN unnest(%(run_ids)s::uuid[], %(scheduled)s::timestamptz[]) AS n (run_id, scheduled_at) USING (run_id, scheduled_at)
JOIN jobs j ON j.job_id = h.job_id
JOIN job_specs s ON s.spec_id = h.spec_id
LEFT JOIN job_classes c ON c.name = s.class
WHERE h.owner = %(owner)s AND h.job_id = ANY(%(job_ids)s::uuid[]) AND (s.class IS NULL OR s.class_hash = c.hash);

-- name: redrive
-- Ended runs go back under their own ids: next attempt, counters at zero. A Succeeded one never does.
WITH back AS (
    DELETE FROM run_history h
    USING unnest(%(run_ids)s::uuid[], %(scheduled)s::timestamptz[], %(pools)s::text[], %(handlers)s::text[],
                 %(groups)s::text[], %(priorities)s::int[], %(pending_timeouts)s::int[], %(attempt_timeouts)s::int[],
                 %(run_timeouts)s::int[])
          AS n (run_id, scheduled_at, pool, handler, concurrency_group, priority, pending_timeout, attempt_timeout,
                run_timeout)
    WHERE h.run_id = n.run_id AND h.scheduled_at = n.scheduled_at AND h.owner = %(owner)s
      -- as text, so that it is found by its key and not among all that did not end well
      AND h.state::text IN ('Dead', 'Unknown', 'Cancelled')
    RETURNING h.*, n.pool, n.handler, n.concurrency_group, n.priority, n.pending_timeout, n.attempt_timeout,
              n.run_timeout),
made AS (
    INSERT INTO live_runs (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                           pool, handler, concurrency_group, spec_id, payload, state, reason, priority, queue_at,
                           ready_at, attempt, launched_at, pending_timeout, attempt_timeout, run_deadline_at)
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, pool, handler,
           concurrency_group, spec_id, payload, 'Blocked', 'JobLimit', priority,
           %(now)s - priority * interval '10 seconds', %(now)s, attempt, launched_at, pending_timeout, attempt_timeout,
           %(now)s + make_interval(secs => run_timeout)
    FROM back
    RETURNING run_id, job_id, kind, state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM made HAVING count(*) > 0)
SELECT run_id, job_id, kind::text AS kind FROM made;

-- name: audit
INSERT INTO audit (at, owner, actor, action, job_id, run_id)
SELECT %(now)s, %(owner)s, %(actor)s, 'retry', n.job_id, n.run_id
FROM unnest(%(job_ids)s::uuid[], %(run_ids)s::uuid[]) AS n (job_id, run_id);
