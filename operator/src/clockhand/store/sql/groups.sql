-- name: waiting
-- The groups for which runs wait: one probe a group, however many wait.
WITH RECURSIVE found (name) AS (
    (SELECT concurrency_group FROM live_runs WHERE waits_for_group ORDER BY concurrency_group LIMIT 1)
    UNION ALL
    SELECT following.name
    FROM found CROSS JOIN LATERAL (
        SELECT concurrency_group AS name FROM live_runs
        WHERE waits_for_group AND concurrency_group > found.name
        ORDER BY concurrency_group LIMIT 1) AS following)
SELECT name FROM found;

-- name: heads
-- The jobs whose runs are the first of their group's queue, for so many places as are free.
SELECT DISTINCT head.job_id
FROM unnest(%(groups)s::text[], %(rooms)s::int[]) AS free (name, room)
CROSS JOIN LATERAL (
    SELECT job_id FROM live_runs
    WHERE waits_for_group AND concurrency_group = free.name
    ORDER BY queue_at LIMIT free.room) AS head;

-- name: wait
-- Their jobs let them go: from now on they wait for a place of their group. The back-off of a Retrying one is over.
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Blocked', reason = 'GroupLimit', message = n.message,
        queue_at = CASE WHEN r.state = 'Retrying' THEN %(now)s - r.priority * interval '10 seconds' ELSE r.queue_at END
    FROM unnest(%(run_ids)s::uuid[], %(messages)s::text[]) AS n (run_id, message)
    WHERE r.run_id = n.run_id AND r.state IN ('Blocked', 'Retrying')
      AND NOT (r.reason IS NOT DISTINCT FROM 'GroupLimit' AND r.state = 'Blocked' AND r.message IS NOT DISTINCT FROM n.message)
    RETURNING r.run_id, r.state)
INSERT INTO run_changes (runs, states)
SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0;

-- name: tell
WITH first AS MATERIALIZED (
    SELECT head.run_id, told.message
    FROM unnest(%(groups)s::text[], %(messages)s::text[]) AS told (name, message)
    CROSS JOIN LATERAL (
        SELECT run_id, message FROM live_runs
        WHERE waits_for_group AND concurrency_group = told.name
        ORDER BY queue_at LIMIT 100) AS head
    WHERE head.message IS DISTINCT FROM told.message),
moved AS (
    UPDATE live_runs r SET message = first.message
    FROM first WHERE r.run_id = first.run_id AND r.state = 'Blocked' AND r.reason = 'GroupLimit'
    RETURNING r.run_id, r.state)
INSERT INTO run_changes (runs, states)
SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0;

-- name: leave
-- Their jobs do not let them go after all: they are out of the group's way.
WITH moved AS (
    UPDATE live_runs r
    SET reason = 'JobLimit', message = NULL
    WHERE r.run_id = ANY(%(run_ids)s::uuid[]) AND r.state = 'Blocked' AND r.reason = 'GroupLimit'
    RETURNING r.run_id, r.state)
INSERT INTO run_changes (runs, states)
SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0;

-- name: promote
-- The first of each group's queue, for so many places as are free; those of other jobs than the locked ones stay.
WITH heads AS MATERIALIZED (
    SELECT head.run_id
    FROM unnest(%(groups)s::text[], %(rooms)s::int[]) AS free (name, room)
    CROSS JOIN LATERAL (
        SELECT run_id, job_id FROM live_runs
        WHERE waits_for_group AND concurrency_group = free.name
        ORDER BY queue_at LIMIT free.room) AS head
    WHERE head.job_id = ANY(%(job_ids)s::uuid[])),
moved AS (
    UPDATE live_runs r
    SET state = 'Queued', reason = NULL, message = NULL, queue_at = %(now)s - r.priority * interval '10 seconds',
        ready_at = %(now)s
    FROM heads
    WHERE r.run_id = heads.run_id AND r.state = 'Blocked' AND r.reason = 'GroupLimit'
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;
