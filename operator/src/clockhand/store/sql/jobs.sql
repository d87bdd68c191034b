-- name: lock
-- What decides whether the job may be changed, before anything else is read of it: an edit that the lock waited for brought
-- a spec which this statement cannot see.
SELECT declared, resource_version, suspended, paused_at IS NOT NULL AS paused
FROM jobs
WHERE job_id = %(job_id)s AND owner = %(owner)s AND deleted_at IS NULL
FOR UPDATE;

-- name: one
SELECT j.job_id, j.owner, j.name, j.declared, j.generation, j.resource_version, j.labels, j.created_at, j.next_run_at,
       j.suspended, j.paused_at IS NOT NULL AS paused, j.parked, j.pool, j.handler, s.spec::text AS spec,
       s.payload::text AS payload, s.template::text AS template, s.template_hash, s.class IS NOT NULL AS of_class,
       t.last_scheduled_at, t.last_success_at, t.consecutive_failures, t.conditions
FROM jobs j JOIN job_specs s USING (spec_id) JOIN job_status t ON t.job_id = j.job_id
WHERE j.job_id = %(job_id)s AND j.owner = %(owner)s AND j.deleted_at IS NULL;

-- name: page
-- The jobs of an owner by name, after a place. No more than `scan` of them are looked at, however few of those are asked for:
-- `last` is where that ended, and `scanned` says how many they were.
WITH scanned AS MATERIALIZED (
    SELECT j.job_id, j.owner, j.name, j.declared, j.generation, j.resource_version, j.labels, j.created_at, j.next_run_at,
           j.suspended, j.paused_at IS NOT NULL AS paused, j.parked, j.pool, j.handler, j.spec_id
    FROM jobs j
    WHERE j.owner = %(owner)s AND j.deleted_at IS NULL AND j.name >= %(name)s AND j.name < %(beyond)s
      AND (j.name, j.job_id) > (%(name)s, %(job_id)s)
    ORDER BY j.name, j.job_id
    LIMIT %(scan)s),
wanted AS MATERIALIZED (
    SELECT * FROM scanned
    WHERE (%(handler)s::text IS NULL OR handler = %(handler)s) AND (%(pool)s::text IS NULL OR pool = %(pool)s)
      AND (%(labels)s::jsonb IS NULL OR labels @> %(labels)s)
      AND (%(standing)s::text IS NULL
           OR %(standing)s = CASE WHEN parked IS NOT NULL THEN 'Invalid' WHEN suspended THEN 'Suspended'
                                  WHEN paused THEN 'Paused' WHEN next_run_at IS NULL THEN 'Finished' ELSE 'Active' END)
    ORDER BY name, job_id
    LIMIT %(size)s)
SELECT ends.scanned, ends.last_name, ends.last_id, w.*, s.spec::text AS spec, t.last_scheduled_at, t.last_success_at,
       t.consecutive_failures, t.conditions
FROM (SELECT count(*) AS scanned, (array_agg(name ORDER BY name DESC, job_id DESC))[1] AS last_name,
             (array_agg(job_id ORDER BY name DESC, job_id DESC))[1] AS last_id
      FROM scanned) AS ends
LEFT JOIN (wanted w JOIN job_specs s USING (spec_id) JOIN job_status t ON t.job_id = w.job_id) ON true
ORDER BY w.name, w.job_id;

-- name: newest_slots
-- The newest slot of each job that became a run: of jobs without an object nothing else keeps it.
SELECT n.job_id, greatest(live.at, ended.at) AS at
FROM unnest(%(job_ids)s::uuid[]) AS n (job_id)
LEFT JOIN LATERAL (
    SELECT scheduled_at AS at FROM live_runs r
    WHERE r.job_id = n.job_id AND r.kind = 'Slot'
    ORDER BY scheduled_at DESC LIMIT 1) AS live ON true
LEFT JOIN LATERAL (
    SELECT scheduled_at AS at FROM run_history h
    WHERE h.job_id = n.job_id AND h.kind = 'Slot'
    ORDER BY scheduled_at DESC LIMIT 1) AS ended ON true
WHERE live.at IS NOT NULL OR ended.at IS NOT NULL;

-- name: activity
-- How many runs of a job are not over, counted up to a limit, and when one of the newest was well.
SELECT (SELECT count(*) FROM (SELECT FROM live_runs WHERE job_id = %(job_id)s LIMIT %(limit)s) AS each) AS active,
       (SELECT max(finished_at) FILTER (WHERE state = 'Succeeded')
        FROM (SELECT finished_at, state FROM run_history
              WHERE job_id = %(job_id)s
              ORDER BY scheduled_at DESC LIMIT %(recent)s) AS each) AS success_at;

-- name: taken
-- Names that jobs have. After the owner's row was locked: nobody else makes a job of that owner meanwhile.
SELECT owner, name
FROM jobs JOIN unnest(%(owners)s::text[], %(names)s::text[]) AS n (owner, name) USING (owner, name)
WHERE deleted_at IS NULL;

-- name: count
-- Up to a limit.
SELECT count(*) AS count
FROM (SELECT FROM jobs WHERE owner = %(owner)s AND deleted_at IS NULL LIMIT %(limit)s) AS each;

-- name: make
-- All that is stored of new jobs which no object declares, in one statement. What they have in common comes once for all of a
-- kind: a spec is then read as JSON once, and not for each of a thousand jobs.
WITH new AS MATERIALIZED (
    SELECT n.job_id, n.name, n.labels::jsonb AS labels, n.payload, n.shard, n.kind,
           (%(owners)s::text[])[n.kind] AS owner, nextval('job_specs_spec_id_seq') AS spec_id
    FROM unnest(%(job_ids)s::uuid[], %(names)s::text[], %(labels)s::text[], %(payloads)s::json[], %(shards)s::smallint[],
                %(kinds)s::int[]) AS n (job_id, name, labels, payload, shard, kind)),
specs AS (
    INSERT INTO job_specs (spec_id, job_id, generation, spec, payload, template, template_hash, class, class_hash, followed,
                           stored_at)
    OVERRIDING SYSTEM VALUE
    SELECT spec_id, job_id, 1, (%(specs)s::json[])[kind], payload, (%(templates)s::jsonb[])[kind],
           (%(template_hashes)s::bytea[])[kind], (%(classes)s::text[])[kind], (%(class_hashes)s::bytea[])[kind],
           (%(followed)s::boolean[])[kind], %(now)s::timestamptz
    FROM new),
made AS (
    INSERT INTO jobs (job_id, owner, name, shard, pool, handler, concurrency_group, declared, generation, resource_version,
                      spec_id, labels, created_at, last_slot_at, next_slot_at, next_run_at, zone, ttl_seconds, suspended)
    SELECT job_id, owner, name, shard, (%(pools)s::text[])[kind], (%(handlers)s::text[])[kind], (%(groups)s::text[])[kind],
           false, 1, 1, spec_id, labels, %(now)s::timestamptz, (%(marks)s::timestamptz[])[kind],
           (%(next_slots)s::timestamptz[])[kind], (%(next_runs)s::timestamptz[])[kind], (%(zones)s::text[])[kind],
           (%(ttls)s::int[])[kind], (%(suspended)s::boolean[])[kind]
    FROM new),
shown AS (
    INSERT INTO job_status (job_id, shard) SELECT job_id, shard %% 256 FROM new)
INSERT INTO audit (at, owner, actor, action, job_id, detail)
SELECT %(now)s::timestamptz, owner, (%(actors)s::text[])[kind], 'create', job_id, jsonb_build_object('name', name)
FROM new;

-- name: forget_conditions
-- After an edit: what was said of the spec before, such as why it was paused.
UPDATE job_status SET conditions = '[]' WHERE job_id = %(job_id)s AND conditions <> '[]';
