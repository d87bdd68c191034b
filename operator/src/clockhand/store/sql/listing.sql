-- Lists of runs. A page walks one index from a cursor downwards and looks at no more than `scan` rows, whatever the
-- selectors are; `edge` is the last row it looked at, from which the next page goes on, and `looked` how many there were: fewer
-- than it might have looked at, or no row at all, are the end.

-- name: live_by_time
WITH scanned AS MATERIALIZED (
    SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
           attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
    FROM live_runs
    WHERE run_id < %(before)s AND run_id >= %(floor)s
    ORDER BY run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.owner >= 'k8s/' AND s.owner < 'k8s0' AND s.state = ANY(%(states)s)
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: live_by_owner
WITH scanned AS MATERIALIZED (
    SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
           attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
    FROM live_runs
    WHERE owner = %(owner)s AND run_id < %(before)s AND run_id >= %(floor)s
    ORDER BY run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.state = ANY(%(states)s)
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: live_by_job
-- A job has several ids where it was deleted and made again under its name. Their runs are in an index by instant, which has
-- no run id: several of one instant are taken all together, and put into their order above.
WITH scanned AS MATERIALIZED (
    SELECT r.* FROM unnest(%(jobs)s::uuid[]) AS j (id), LATERAL (
        SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason,
               message, attempt, failures, disruptions, claimed_at, launched_at, started_at,
               NULL::timestamptz AS finished_at, node, worker, shard
        FROM live_runs
        WHERE job_id = j.id AND scheduled_at <= %(newest)s AND scheduled_at >= %(oldest)s
          AND run_id < %(before)s AND run_id >= %(floor)s
        ORDER BY scheduled_at DESC FETCH FIRST %(scan)s ROWS WITH TIES) r
    ORDER BY r.run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.state = ANY(%(states)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: history_by_time
WITH scanned AS MATERIALIZED (
    SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
           attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
    FROM run_history
    WHERE run_id < %(before)s AND run_id >= %(floor)s AND scheduled_at >= %(oldest)s AND scheduled_at <= %(newest)s
    ORDER BY run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.owner >= 'k8s/' AND s.owner < 'k8s0' AND s.state = ANY(%(states)s) AND s.finished_at <= %(asof)s
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: history_by_owner
WITH scanned AS MATERIALIZED (
    SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
           attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
    FROM run_history
    WHERE owner = %(owner)s AND run_id < %(before)s AND run_id >= %(floor)s
      AND scheduled_at >= %(oldest)s AND scheduled_at <= %(newest)s
    ORDER BY run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.state = ANY(%(states)s) AND s.finished_at <= %(asof)s
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: history_by_job
WITH scanned AS MATERIALIZED (
    SELECT r.* FROM unnest(%(jobs)s::uuid[]) AS j (id), LATERAL (
        SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason,
               message, attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
        FROM run_history
        WHERE job_id = j.id AND scheduled_at <= %(newest)s AND scheduled_at >= %(oldest)s
          AND run_id < %(before)s AND run_id >= %(floor)s
        ORDER BY scheduled_at DESC FETCH FIRST %(scan)s ROWS WITH TIES) r
    ORDER BY r.run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.state = ANY(%(states)s) AND s.finished_at <= %(asof)s
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: history_by_owner_and_state
-- Only for states other than Succeeded: those are few and have indexes of their own.
WITH scanned AS MATERIALIZED (
    SELECT r.* FROM unnest(%(states)s::run_state[]) AS wanted (state), LATERAL (
        SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, h.state::text, reason,
               message, attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
        FROM run_history h
        WHERE h.owner = %(owner)s AND h.state = wanted.state AND h.state <> 'Succeeded'
          AND run_id < %(before)s AND run_id >= %(floor)s AND scheduled_at >= %(oldest)s AND scheduled_at <= %(newest)s
        ORDER BY run_id DESC LIMIT %(scan)s) r
    ORDER BY r.run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.finished_at <= %(asof)s AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: history_by_state
-- The same of all namespaces.
WITH scanned AS MATERIALIZED (
    SELECT r.* FROM unnest(%(states)s::run_state[]) AS wanted (state), LATERAL (
        SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, h.state::text, reason,
               message, attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
        FROM run_history h
        WHERE h.state = wanted.state AND h.state <> 'Succeeded' AND run_id < %(before)s AND run_id >= %(floor)s
          AND scheduled_at >= %(oldest)s AND scheduled_at <= %(newest)s
        ORDER BY run_id DESC LIMIT %(scan)s) r
    ORDER BY r.run_id DESC LIMIT %(scan)s),
edge AS (SELECT run_id AS edge, (SELECT count(*) FROM scanned) AS looked FROM scanned ORDER BY run_id LIMIT 1)
SELECT edge.*, found.* FROM edge LEFT JOIN LATERAL (
    SELECT s.* FROM scanned s, LATERAL (
        SELECT coalesce(s.labels, '{}') || jsonb_build_object('clockhand.dev/job', s.job_name) AS held) l
    WHERE s.owner >= 'k8s/' AND s.owner < 'k8s0' AND s.finished_at <= %(asof)s
      AND (%(job)s::text IS NULL OR s.job_name = %(job)s)
      AND l.held @> %(equal)s AND l.held ?& %(present)s AND NOT l.held ?| %(absent)s
      AND NOT EXISTS (SELECT FROM jsonb_each(%(within)s) w WHERE coalesce(w.value ? (l.held ->> w.key), false) = false)
      AND NOT EXISTS (SELECT FROM jsonb_each(%(outside)s) o WHERE o.value ? (l.held ->> o.key))
    ORDER BY s.run_id DESC LIMIT %(take)s) found ON true;

-- name: skips_by_time
SELECT skip_id, job_id, owner, job_name, labels, first_at, last_at, count, reason::text, recorded_at
FROM skips
WHERE (last_at, skip_id) < (%(before_at)s, %(before_id)s) AND last_at >= %(oldest)s AND last_at <= %(newest)s
ORDER BY last_at DESC, skip_id DESC LIMIT %(scan)s;

-- name: skips_by_owner
SELECT skip_id, job_id, owner, job_name, labels, first_at, last_at, count, reason::text, recorded_at
FROM skips
WHERE owner = %(owner)s AND (last_at, skip_id) < (%(before_at)s, %(before_id)s)
  AND last_at >= %(oldest)s AND last_at <= %(newest)s
ORDER BY last_at DESC, skip_id DESC LIMIT %(scan)s;

-- name: skips_by_job
SELECT s.* FROM unnest(%(jobs)s::uuid[]) AS j (id), LATERAL (
    SELECT skip_id, job_id, owner, job_name, labels, first_at, last_at, count, reason::text, recorded_at
    FROM skips
    WHERE job_id = j.id AND last_at <= %(before_at)s AND (last_at, skip_id) < (%(before_at)s, %(before_id)s)
      AND last_at >= %(oldest)s AND last_at <= %(newest)s
    ORDER BY last_at DESC, skip_id DESC LIMIT %(scan)s) s
ORDER BY s.last_at DESC, s.skip_id DESC LIMIT %(scan)s;

-- name: skip_named
SELECT skip_id, job_id, owner, job_name, labels, first_at, last_at, count, reason::text, recorded_at
FROM skips
WHERE skip_id = %(skip_id)s AND last_at >= %(from_at)s AND last_at < %(to_at)s AND owner = %(owner)s;

-- name: job
SELECT name, deleted_at FROM jobs WHERE job_id = %(job_id)s AND owner = %(owner)s;

-- name: job_ids
SELECT job_id FROM jobs WHERE owner = %(owner)s AND name = %(name)s AND deleted_at IS NULL
UNION ALL
SELECT job_id FROM jobs WHERE owner = %(owner)s AND name = %(name)s AND deleted_at IS NOT NULL;

-- name: job_ids_anywhere
-- A few at most: a name that many namespaces use is found quickly by walking through time.
SELECT job_id FROM jobs WHERE owner >= 'k8s/' AND owner < 'k8s0' AND name = %(name)s AND deleted_at IS NULL
UNION ALL
SELECT job_id FROM jobs WHERE owner >= 'k8s/' AND owner < 'k8s0' AND name = %(name)s AND deleted_at IS NOT NULL
LIMIT 101;

-- name: named
-- Runs that somebody asked for, by the name they gave or got.
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
FROM live_runs WHERE owner = %(owner)s AND name = %(name)s AND kind <> 'Slot'
UNION ALL
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
FROM run_history WHERE owner = %(owner)s AND name = %(name)s AND kind <> 'Slot'
ORDER BY created_at DESC, run_id DESC LIMIT 100;

-- name: slot_of_jobs
-- The run of a slot, by its job and the second that its name says. Of several the one that was made last comes first.
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
FROM live_runs
WHERE job_id = ANY(%(jobs)s) AND scheduled_at >= %(from_at)s AND scheduled_at < %(to_at)s AND kind = 'Slot'
  AND name = %(name)s
UNION ALL
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
FROM run_history
WHERE job_id = ANY(%(jobs)s) AND scheduled_at >= %(from_at)s AND scheduled_at < %(to_at)s AND kind = 'Slot'
  AND name = %(name)s
ORDER BY created_at DESC, run_id DESC LIMIT 100;

-- name: slot_of_owner
-- The same where the job's own row is gone: among the owner's runs of that second.
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
FROM live_runs
WHERE owner = %(owner)s AND run_id >= %(floor)s AND run_id < %(before)s AND name = %(name)s
UNION ALL
SELECT run_id, job_id, owner, job_name, name, labels, kind::text, scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
FROM run_history
WHERE owner = %(owner)s AND run_id >= %(floor)s AND run_id < %(before)s AND name = %(name)s
  AND scheduled_at >= %(from_at)s AND scheduled_at < %(to_at)s
ORDER BY created_at DESC, run_id DESC LIMIT 100;

-- name: by_ids
-- What the runs of a batch of changes look like now. The instant names the partition.
SELECT r.run_id, job_id, owner, job_name, name, labels, kind::text, r.scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, NULL::timestamptz AS finished_at, node, worker, shard
FROM live_runs r WHERE r.run_id = ANY(%(runs)s::uuid[])
UNION ALL
SELECT h.run_id, job_id, owner, job_name, name, labels, kind::text, h.scheduled_at, created_at, state::text, reason, message,
       attempt, failures, disruptions, claimed_at, launched_at, started_at, finished_at, node, worker, shard
FROM unnest(%(runs)s::uuid[], %(instants)s::timestamptz[]) AS wanted (run_id, scheduled_at)
JOIN run_history h ON h.run_id = wanted.run_id AND h.scheduled_at = wanted.scheduled_at;

-- name: contents
-- A run's own payload, else that of the spec under which it was made; and what its handler returned.
SELECT coalesce(found.payload, s.payload) AS payload, found.result
FROM (SELECT payload, NULL::jsonb AS result, spec_id FROM live_runs WHERE run_id = %(run_id)s
      UNION ALL
      SELECT payload, result, spec_id FROM run_history WHERE run_id = %(run_id)s AND scheduled_at = %(scheduled_at)s
      LIMIT 1) AS found
LEFT JOIN job_specs s ON s.spec_id = found.spec_id;

-- name: attempts
SELECT attempt, claimed_at, started_at, ended_at, outcome, reason, exit_code, message, pod_name, node, worker,
       log_tail IS NOT NULL AS logged
FROM attempts WHERE run_id = %(run_id)s AND scheduled_at = %(scheduled_at)s
ORDER BY attempt DESC LIMIT 50;

-- name: log_tail
-- Of one attempt, or of the newest that has a log.
SELECT attempt, log_tail
FROM attempts
WHERE run_id = %(run_id)s AND scheduled_at = %(scheduled_at)s AND log_tail IS NOT NULL
  AND (%(attempt)s::int IS NULL OR attempt = %(attempt)s)
ORDER BY attempt DESC LIMIT 1;
