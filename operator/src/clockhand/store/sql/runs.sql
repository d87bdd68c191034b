-- name: open_of_shards
-- What a new holder goes through first: every attempt whose pod may exist. The keyset is the run id.
SELECT run_id, job_id, owner, job_name, name, scheduled_at, shard, spec_id, attempt, token, fencing, payload,
       payload IS NOT NULL AS own_payload, state::text AS state, pod_uid, claimed_at, stop_reason
FROM live_runs
WHERE shard = ANY(%(shards)s::smallint[]) AND state IN ('Claimed', 'Running', 'Stopping') AND pool IS NULL
  AND run_id > %(after)s
ORDER BY run_id
LIMIT %(limit)s;

-- name: templates
SELECT spec_id, generation, template, coalesce(payload, 'null'::json) AS payload, spec::text AS spec
FROM job_specs WHERE spec_id = ANY(%(spec_ids)s);

-- name: launched
-- The API server has the attempt's pod. Lateness is measured to the first time this is stored; a backfill's run has none.
UPDATE live_runs r
SET pod_uid = n.pod_uid, launched_at = coalesce(r.launched_at, n.launched_at)
FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(generations)s::bigint[], %(pod_uids)s::uuid[],
            %(launched)s::timestamptz[]) AS n (run_id, token, generation, pod_uid, launched_at)
WHERE r.run_id = n.run_id AND r.token = n.token AND r.state IN ('Claimed', 'Running', 'Stopping')
  AND EXISTS (SELECT FROM shard_leases s
              WHERE s.shard = r.shard AND s.generation = n.generation AND s.holder = %(replica)s)
RETURNING r.run_id, extract(epoch FROM r.launched_at - r.scheduled_at)::float AS lateness,
          r.attempt = 1 AND r.kind <> 'Backfill' AS first;

-- name: running
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Running', reason = NULL, message = NULL, started_at = %(now)s, pod_uid = n.pod_uid, node = n.node,
        launched_at = coalesce(r.launched_at, %(now)s),
        deadline_at = %(now)s + make_interval(secs => r.attempt_timeout)
    FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(generations)s::bigint[], %(pod_uids)s::uuid[],
                %(nodes)s::text[]) AS n (run_id, token, generation, pod_uid, node)
    WHERE r.run_id = n.run_id AND r.token = n.token AND r.state = 'Claimed'
      AND EXISTS (SELECT FROM shard_leases s
                  WHERE s.shard = r.shard AND s.generation = n.generation AND s.holder = %(replica)s)
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;

-- name: waiting_for_pod
-- Why a Claimed run has not started, for people; not worth a change of its own row state.
WITH moved AS (
    UPDATE live_runs r SET reason = n.reason, message = n.message
    FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(reasons)s::text[], %(messages)s::text[])
         AS n (run_id, token, reason, message)
    WHERE r.run_id = n.run_id AND r.token = n.token AND r.state = 'Claimed'
      AND (r.reason, r.message) IS DISTINCT FROM (n.reason, n.message)
    RETURNING r.run_id, r.state)
INSERT INTO run_changes (runs, states)
SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0;

-- name: extend_pending
-- A gated pod waits on purpose: its time does not count.
UPDATE live_runs r
SET deadline_at = %(now)s + make_interval(secs => r.pending_timeout)
FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[]) AS n (run_id, token)
WHERE r.run_id = n.run_id AND r.token = n.token AND r.state = 'Claimed';

-- name: lock_open
-- The runs whose attempts are about to end, locked in one order for everybody; a stale token finds nothing.
SELECT r.run_id, r.job_id, r.owner, r.job_name, r.name, r.state::text AS state, r.attempt, r.failures, r.disruptions,
       r.token, r.stop_reason, r.scheduled_at, r.claimed_at, r.started_at, r.node, r.pool, r.worker,
       job_specs.spec::text AS spec, job_specs.followed, jobs.deleted_at IS NOT NULL AS job_is_deleted
FROM live_runs r
JOIN unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(generations)s::bigint[]) AS n (run_id, token, generation)
     ON r.run_id = n.run_id AND r.token = n.token
JOIN job_specs ON job_specs.spec_id = r.spec_id
JOIN jobs ON jobs.job_id = r.job_id
WHERE r.state IN ('Claimed', 'Running', 'Stopping')
  AND EXISTS (SELECT FROM shard_leases s
              WHERE s.shard = r.shard AND s.generation = n.generation AND s.holder = %(replica)s)
ORDER BY r.run_id
FOR UPDATE OF r;

-- name: finish
-- Ends runs whose attempt is open: the row moves to history. One that history already has is reported, not fatal.
-- What was not stored of a pod before it was over is taken from what the pod says; its clock only ever shows, never decides.
-- A worker's success ends here at once, without a look at the run: its counters stay as they are.
-- A run with a token is open: where its state was asked for as well, an index of open runs would be read as a whole, with
-- all that vacuum has left in it.
-- Nobody knows beforehand how many `gone` are: joined with the other parts they would be gone through row by row for each
-- row, looked up with IN they are hashed.
WITH gone AS (
    DELETE FROM live_runs r
    USING unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(states)s::run_state[], %(reasons)s::text[],
                 %(messages)s::text[], %(failures)s::int[], %(disruptions)s::int[], %(pod_uids)s::uuid[],
                 %(nodes)s::text[], %(created)s::timestamptz[], %(started)s::timestamptz[], %(pools)s::text[],
                 %(workers)s::text[], %(reported)s::boolean[], %(results)s::text[])
          AS n (run_id, token, state, reason, message, failures, disruptions, pod_uid, node, created_at, started_at, pool,
                worker, reported, result)
    WHERE r.run_id = n.run_id AND r.token = n.token
      AND r.pool IS NOT DISTINCT FROM n.pool AND r.worker IS NOT DISTINCT FROM n.worker
    RETURNING r.*, n.state AS new_state, n.reason AS new_reason, n.message AS new_message, n.reported, n.result,
              coalesce(n.failures, r.failures) AS new_failures, coalesce(n.disruptions, r.disruptions) AS new_disruptions,
              coalesce(r.pod_uid, n.pod_uid) AS its_pod_uid, coalesce(r.node, n.node) AS its_node,
              coalesce(r.launched_at, CASE WHEN n.created_at IS NOT NULL
                                      THEN least(greatest(n.created_at, r.claimed_at), %(now)s) END) AS its_launch,
              coalesce(r.started_at, CASE WHEN n.started_at IS NOT NULL
                                     THEN least(greatest(n.started_at, r.claimed_at), %(now)s) END) AS its_start),
kept AS (
    INSERT INTO run_history (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                             spec_id, payload, state, reason, message, attempt, failures, disruptions, claimed_at,
                             launched_at, started_at, finished_at, pod_uid, node, worker, token, result)
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, spec_id, payload,
           new_state, new_reason, new_message, attempt, new_failures, new_disruptions, claimed_at, its_launch,
           its_start, %(now)s, its_pod_uid, its_node, worker, CASE WHEN reported THEN token END, result::jsonb
    FROM gone
    ON CONFLICT DO NOTHING
    RETURNING run_id),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(new_state) FROM gone HAVING count(*) > 0),
locked AS MATERIALIZED (
    -- In one order for everybody: a batch that fires locks the same rows. That one more run of a tenant's job went well
    -- changes nothing: there is no object that shows it.
    SELECT job_id FROM job_status
    WHERE job_id IN (SELECT job_id FROM gone)
      AND (consecutive_failures > 0
           OR job_id IN (SELECT job_id FROM gone
                         WHERE starts_with(owner, 'k8s/') OR new_state <> 'Succeeded' OR kind = 'Manual'))
    ORDER BY job_id FOR NO KEY UPDATE),
shown AS (
    UPDATE job_status
    SET last_success_at = greatest(last_success_at, ended.success_at),
        consecutive_failures = CASE WHEN ended.success_at IS NOT NULL THEN 0
                                    ELSE consecutive_failures + ended.deaths END,
        last_manual_success_at = CASE WHEN ended.by_hand THEN %(now)s ELSE last_manual_success_at END,
        ill_runs = ill_runs + ended.ill, ill_run = coalesce(ended.ill_run, job_status.ill_run),
        -- a tenant's job has no object to be patched
        dirty_at = CASE WHEN ended.has_object THEN coalesce(dirty_at, %(now)s) ELSE dirty_at END
    FROM (SELECT job_id, bool_or(starts_with(owner, 'k8s/')) AS has_object,
                 max(%(now)s) FILTER (WHERE new_state = 'Succeeded') AS success_at,
                 bool_or(new_state = 'Succeeded' AND kind = 'Manual') AS by_hand,
                 count(*) FILTER (WHERE new_state = 'Dead') AS deaths,
                 count(*) FILTER (WHERE new_state IN ('Dead', 'Unknown')) AS ill,
                 (array_agg(run_id) FILTER (WHERE new_state IN ('Dead', 'Unknown')))[1] AS ill_run
          FROM gone GROUP BY job_id HAVING job_id IN (SELECT job_id FROM locked)) AS ended
    WHERE job_status.job_id = ended.job_id)
SELECT gone.run_id, gone.token, gone.job_id, gone.kind::text AS kind, gone.key, gone.new_state::text AS state,
       gone.new_reason AS reason, gone.attempt, gone.claimed_at,
       CASE WHEN %(named)s OR gone.new_state <> 'Succeeded' THEN gone.name END AS name,
       CASE WHEN %(named)s OR gone.new_state <> 'Succeeded' THEN gone.job_name END AS job_name,
       CASE WHEN %(named)s OR gone.new_state <> 'Succeeded' THEN gone.owner END AS owner,
       greatest(extract(epoch FROM %(now)s - coalesce(gone.its_start, gone.claimed_at))::float8, 0) AS seconds,
       gone.run_id IN (SELECT run_id FROM kept) AS kept, job_specs.followed
FROM gone LEFT JOIN job_specs USING (spec_id);

-- name: retry
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Retrying', reason = n.reason, message = n.message, failures = n.failures, disruptions = n.disruptions,
        ready_at = n.ready_at, token = NULL, worker = NULL, lease_until = NULL, stop_reason = NULL, deadline_at = NULL,
        pod_uid = NULL,
        launched_at = coalesce(r.launched_at, CASE WHEN n.created_at IS NOT NULL
                                              THEN least(greatest(n.created_at, r.claimed_at), installed.time) END)
    FROM (SELECT now() - coalesce(clock_step, '0') AS time FROM installation) AS installed,
         unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(reasons)s::text[], %(messages)s::text[],
                %(failures)s::int[], %(disruptions)s::int[], %(ready)s::timestamptz[], %(created)s::timestamptz[])
         AS n (run_id, token, reason, message, failures, disruptions, ready_at, created_at)
    WHERE r.run_id = n.run_id AND r.token = n.token AND r.state IN ('Claimed', 'Running', 'Stopping')
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;

-- name: hand_back
-- Claimed, never launched, and this replica will not: somebody else shall. The attempt number is spent, nothing else.
-- A former holder may not: the new one may be launching the attempt at this moment.
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Queued', token = NULL, worker = NULL, lease_until = NULL, deadline_at = NULL, reason = NULL, message = NULL
    FROM unnest(%(run_ids)s::uuid[], %(tokens)s::bigint[], %(generations)s::bigint[]) AS n (run_id, token, generation)
    WHERE r.run_id = n.run_id AND r.token = n.token AND r.state = 'Claimed' AND r.pod_uid IS NULL
      AND EXISTS (SELECT FROM shard_leases s
                  WHERE s.shard = r.shard AND s.generation = n.generation AND s.holder = %(replica)s)
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;

-- name: record_attempts
INSERT INTO attempts (run_id, scheduled_at, attempt, claimed_at, started_at, ended_at, outcome, reason, exit_code,
                      message, pod_name, node, worker, token, log_tail)
SELECT n.run_id, n.scheduled_at, n.attempt, n.claimed_at, n.started_at, %(now)s, n.outcome, n.reason, n.exit_code,
       n.message, n.pod_name, n.node, n.worker, n.token, n.log_tail
FROM unnest(%(run_ids)s::uuid[], %(scheduled)s::timestamptz[], %(attempts)s::int[], %(claimed)s::timestamptz[],
            %(started)s::timestamptz[], %(outcomes)s::text[], %(reasons)s::text[], %(exit_codes)s::int[],
            %(messages)s::text[], %(pod_names)s::text[], %(nodes)s::text[], %(workers)s::text[], %(tokens)s::bigint[],
            %(log_tails)s::text[])
     AS n (run_id, scheduled_at, attempt, claimed_at, started_at, outcome, reason, exit_code, message, pod_name, node,
           worker, token, log_tail)
ON CONFLICT DO NOTHING;

-- name: cancel_waiting
-- Runs that hold no token: nothing has to be stopped first.
WITH gone AS (
    DELETE FROM live_runs
    WHERE run_id = ANY (ARRAY(
        SELECT run_id FROM live_runs
        WHERE (job_id = ANY(%(job_ids)s::uuid[]) OR run_id = ANY(%(run_ids)s::uuid[]))
          AND state IN ('Blocked', 'Queued', 'Retrying')
        ORDER BY run_id FOR UPDATE))
      AND state IN ('Blocked', 'Queued', 'Retrying')
    RETURNING *),
kept AS (
    INSERT INTO run_history (run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard,
                             spec_id, payload, state, reason, message, attempt, failures, disruptions, claimed_at,
                             launched_at, started_at, finished_at, pod_uid, node)
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, spec_id, payload,
           %(state)s::run_state, %(reason)s, message, attempt, failures, disruptions, claimed_at, launched_at,
           started_at, %(now)s, NULL, node
    FROM gone
    ON CONFLICT DO NOTHING
    RETURNING run_id),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(%(state)s::run_state) FROM gone HAVING count(*) > 0),
locked AS MATERIALIZED (
    SELECT job_id FROM job_status WHERE job_id IN (SELECT job_id FROM gone) ORDER BY job_id FOR NO KEY UPDATE),
shown AS (
    UPDATE job_status
    SET dirty_at = CASE WHEN ended.has_object THEN coalesce(dirty_at, %(now)s) ELSE dirty_at END,
        consecutive_failures = consecutive_failures + ended.deaths,
        ill_runs = ill_runs + ended.deaths, ill_run = coalesce(ended.ill_run, job_status.ill_run)
    FROM (SELECT job_id, bool_or(starts_with(owner, 'k8s/')) AS has_object,
                 count(*) FILTER (WHERE %(state)s = 'Dead') AS deaths,
                 (array_agg(run_id) FILTER (WHERE %(state)s = 'Dead'))[1] AS ill_run
          FROM gone GROUP BY job_id HAVING job_id IN (SELECT job_id FROM locked)) AS ended
    WHERE job_status.job_id = ended.job_id)
SELECT run_id, job_id, run_id IN (SELECT run_id FROM kept) AS kept FROM gone;

-- name: stop_open
-- Asks attempts to stop. A Stopping run keeps its place until its pod is gone.
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Stopping', stop_reason = %(reason)s, reason = %(reason)s
    WHERE r.run_id = ANY (ARRAY(
        SELECT run_id FROM live_runs
        WHERE (job_id = ANY(%(job_ids)s::uuid[]) OR run_id = ANY(%(run_ids)s::uuid[]))
          AND state IN ('Claimed', 'Running')
        ORDER BY run_id FOR UPDATE))
      AND state IN ('Claimed', 'Running')
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;

-- name: overdue
-- Runs of the held shards past a deadline: of the attempt, or of the run as a whole; locked, so that one which starts at
-- this moment is not stopped for what held before. What somebody else holds is looked at again in the next pass.
WITH timed AS MATERIALIZED (
    SELECT late.run_id, late.state
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT run_id, state FROM live_runs
        WHERE live_runs.shard = mine.shard AND run_deadline_at <= %(now)s AND state <> 'Stopping'
        ORDER BY run_deadline_at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED) AS late
    LIMIT %(limit)s),
slow AS MATERIALIZED (
    SELECT late.run_id, late.state
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT run_id, state FROM live_runs
        WHERE live_runs.shard = mine.shard AND deadline_at <= %(now)s AND state IN ('Claimed', 'Running')
          AND pool IS NULL
        ORDER BY deadline_at LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED) AS late
    LIMIT %(limit)s)
SELECT run_id, state::text AS state, 'RunTimeout' AS reason FROM timed
UNION ALL
SELECT run_id, state::text, CASE WHEN state = 'Claimed' THEN 'PendingTimeout' ELSE 'AttemptTimeout' END
FROM slow WHERE NOT EXISTS (SELECT FROM timed WHERE timed.run_id = slow.run_id);

-- name: jobs_waiting
-- Jobs of the held shards with a run that may be promotable; the keyset is the job id. Jobs with Blocked runs are gone
-- through one row a job, however many of its runs wait.
WITH RECURSIVE blocked (job_id, shard) AS (
    (SELECT job_id, shard FROM live_runs
     WHERE state = 'Blocked' AND NOT waits_for_group AND job_id > %(after)s
     ORDER BY job_id LIMIT 1)
    UNION ALL
    SELECT following.job_id, following.shard
    FROM blocked CROSS JOIN LATERAL (
        SELECT job_id, shard FROM live_runs
        WHERE state = 'Blocked' AND NOT waits_for_group AND job_id > blocked.job_id
        ORDER BY job_id LIMIT 1) AS following),
ready AS (
    SELECT late.job_id
    FROM unnest(%(shards)s::smallint[]) AS mine (shard)
    CROSS JOIN LATERAL (
        SELECT job_id FROM live_runs
        WHERE live_runs.shard = mine.shard AND state = 'Retrying' AND ready_at <= %(now)s AND job_id > %(after)s) AS late)
SELECT job_id FROM (
    (SELECT job_id FROM blocked WHERE shard = ANY(%(shards)s::smallint[]) LIMIT %(limit)s)
    UNION
    SELECT job_id FROM ready) AS waiting
ORDER BY job_id
LIMIT %(limit)s;

-- name: lock_specs_of_jobs
SELECT jobs.job_id, job_specs.spec::text AS spec
FROM jobs JOIN job_specs USING (spec_id)
WHERE jobs.job_id = ANY(%(job_ids)s::uuid[])
ORDER BY jobs.job_id
FOR UPDATE OF jobs;

-- name: promote
WITH moved AS (
    UPDATE live_runs r
    SET state = 'Queued', reason = NULL, queue_at = %(now)s - r.priority * interval '10 seconds', ready_at = %(now)s
    WHERE r.run_id = ANY(%(run_ids)s::uuid[]) AND r.state IN ('Blocked', 'Retrying')
    RETURNING r.run_id, r.state),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id FROM moved;

-- name: wake
-- One look for all loops: what is due now, and when something will be. One index probe a shard and question.
WITH installed AS MATERIALIZED (
    SELECT date_trunc('milliseconds', now()) AS clock, clock_step, clock_noticed_at,
           now() - coalesce(clock_step, '0') AS time
    FROM installation)
SELECT (SELECT clock FROM installed) AS clock,
       (SELECT clock_step FROM installed) AS clock_step,
       (SELECT clock_noticed_at FROM installed) AS clock_noticed_at,
       min(due.next_run_at) AS next_due,
       coalesce(bool_or(queued.there), false) AS queued,
       min(retrying.ready_at) AS next_retry,
       coalesce(bool_or(blocked.there), false) AS blocked,
       min(opened.deadline_at) AS next_deadline,
       min(timed.run_deadline_at) AS next_run_deadline,
       coalesce(bool_or(stopping.there), false) AS stopping,
       coalesce(bool_or(attempts.there), false) AS open,
       coalesce(bool_or(news.there), false) AS news,
       EXISTS (SELECT FROM run_changes WHERE first_number IS NULL) AS unnumbered,
       (SELECT min(first.next_run_at)
        FROM generate_series(%(first)s::int, %(last)s::int) AS every (shard)
        CROSS JOIN LATERAL (SELECT next_run_at FROM jobs
                            WHERE jobs.shard = every.shard AND next_run_at <= (SELECT time FROM installed)
                            ORDER BY next_run_at LIMIT 1) AS first) AS oldest_anywhere,
       (SELECT look_at FROM backfills WHERE ended_at IS NULL AND shard = ANY(%(shards)s::smallint[])
        ORDER BY look_at LIMIT 1) AS next_backfill,
       EXISTS (SELECT FROM live_runs r
               WHERE r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NOT NULL) AS leased,
       ARRAY(SELECT asked.number
             FROM unnest(%(pools)s::text[], %(handlers)s::text[], %(lows)s::text[], %(highs)s::text[])
                  WITH ORDINALITY AS asked (pool, handler, low, high, number)
             CROSS JOIN LATERAL (SELECT FROM live_runs r
                                 WHERE r.state = 'Queued' AND r.pool = asked.pool AND r.pool IS NOT NULL
                                   AND r.handler = asked.handler
                                   AND r.owner >= asked.low COLLATE "C" AND r.owner < asked.high COLLATE "C"
                                 LIMIT 1) AS there) AS queued_for,
       (SELECT coalesce(jsonb_agg(to_jsonb(p)), '[]') FROM pools p
        WHERE pool = ANY(%(known)s::text[]) AND deleted_at IS NULL) AS pools
FROM unnest(%(shards)s::smallint[]) AS mine (shard)
LEFT JOIN LATERAL (SELECT next_run_at FROM jobs WHERE jobs.shard = mine.shard AND next_run_at IS NOT NULL
                   ORDER BY next_run_at LIMIT 1) AS due ON true
LEFT JOIN LATERAL (SELECT true AS there FROM live_runs r
                   WHERE r.shard = mine.shard AND r.state = 'Queued' AND r.pool IS NULL
                   LIMIT 1) AS queued ON true
LEFT JOIN LATERAL (SELECT ready_at FROM live_runs r WHERE r.shard = mine.shard AND r.state = 'Retrying'
                   ORDER BY ready_at LIMIT 1) AS retrying ON true
LEFT JOIN LATERAL (SELECT true AS there FROM live_runs r WHERE r.shard = mine.shard AND r.state = 'Blocked'
                   LIMIT 1) AS blocked ON true
LEFT JOIN LATERAL (SELECT deadline_at FROM live_runs r
                   WHERE r.shard = mine.shard AND deadline_at IS NOT NULL AND r.state IN ('Claimed', 'Running')
                     AND r.pool IS NULL
                   ORDER BY deadline_at LIMIT 1) AS opened ON true
LEFT JOIN LATERAL (SELECT true AS there FROM live_runs r WHERE r.shard = mine.shard AND r.state = 'Stopping'
                   LIMIT 1) AS stopping ON true
LEFT JOIN LATERAL (SELECT true AS there FROM live_runs r
                   WHERE r.shard = mine.shard AND r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NULL
                   LIMIT 1) AS attempts ON true
LEFT JOIN LATERAL (SELECT true AS there FROM job_status s WHERE s.shard = mine.shard AND s.dirty_at IS NOT NULL
                   LIMIT 1) AS news ON true
LEFT JOIN LATERAL (SELECT run_deadline_at FROM live_runs r
                   WHERE r.shard = mine.shard AND run_deadline_at IS NOT NULL AND r.state <> 'Stopping'
                   ORDER BY run_deadline_at LIMIT 1) AS timed ON true;

-- name: still_open
-- Of the given attempts, those whose outcome is not stored yet: their pods must stay.
SELECT r.run_id, r.attempt
FROM live_runs r
JOIN unnest(%(run_ids)s::uuid[], %(attempts)s::int[]) AS n (run_id, attempt) USING (run_id, attempt)
WHERE r.state IN ('Claimed', 'Running', 'Stopping');
