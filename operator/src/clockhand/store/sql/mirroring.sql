-- name: known
-- What is stored of these objects, without locks: most events change nothing.
SELECT job_id, generation, resource_version, labels, parked, deleted_at
FROM jobs
WHERE job_id = ANY(%(job_ids)s::uuid[]);

-- name: lock
-- In one order for everybody, so that two transactions cannot wait for each other.
SELECT j.job_id, j.owner, j.name, j.shard, j.created_at, j.generation, j.resource_version, j.last_slot_at, j.next_slot_at,
       j.suspended, j.paused_at, j.parked, j.deleted_at, s.spec::text AS spec, s.template_hash
FROM jobs j JOIN job_specs s USING (spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[])
ORDER BY j.job_id
FOR UPDATE OF j;

-- name: count_owners
-- jobs_made only grows: it tells over how many shards the owner's next job may be spread.
INSERT INTO owners (owner, jobs_made)
SELECT n.owner, n.made
FROM unnest(%(owners)s::text[], %(made)s::bigint[]) AS n (owner, made)
ORDER BY n.owner
ON CONFLICT (owner) DO UPDATE SET jobs_made = owners.jobs_made + EXCLUDED.jobs_made
RETURNING owner, jobs_made;

-- name: add_specs
INSERT INTO job_specs (job_id, generation, spec, payload, template, template_hash, class, class_hash, followed, stored_at)
SELECT n.job_id, n.generation, n.spec::json, n.payload::json, n.template::jsonb, n.template_hash, n.class, n.class_hash,
       n.followed, %(now)s
FROM unnest(%(job_ids)s::uuid[], %(generations)s::bigint[], %(specs)s::text[], %(payloads)s::text[],
            %(templates)s::text[], %(template_hashes)s::bytea[], %(classes)s::text[], %(class_hashes)s::bytea[],
            %(followed)s::boolean[])
     AS n (job_id, generation, spec, payload, template, template_hash, class, class_hash, followed)
RETURNING job_id, spec_id;

-- name: add_jobs
INSERT INTO jobs (job_id, owner, name, shard, pool, handler, concurrency_group, generation, resource_version, spec_id,
                  labels, created_at, last_slot_at, next_slot_at, next_run_at, zone, ttl_seconds, suspended,
                  parked)
SELECT n.job_id, n.owner, n.name, n.shard, n.pool, n.handler, n.concurrency_group, n.generation,
       n.resource_version, n.spec_id, n.labels::jsonb, n.created_at, n.mark, n.next_slot_at, n.next_slot_at + n.delay, n.zone,
       n.ttl, n.suspended, n.parked
FROM unnest(%(job_ids)s::uuid[], %(owners)s::text[], %(names)s::text[], %(shards)s::smallint[],
            %(generations)s::bigint[], %(resource_versions)s::bigint[], %(spec_ids)s::bigint[], %(labels)s::text[],
            %(created)s::timestamptz[], %(marks)s::timestamptz[], %(next_slots)s::timestamptz[],
            %(delays)s::interval[], %(zones)s::text[], %(ttls)s::int[], %(suspended)s::boolean[], %(parked)s::text[],
            %(pools)s::text[], %(handlers)s::text[], %(groups)s::text[])
     AS n (job_id, owner, name, shard, generation, resource_version, spec_id, labels, created_at, mark, next_slot_at,
           delay, zone, ttl, suspended, parked, pool, handler, concurrency_group)
ON CONFLICT (job_id) DO NOTHING;

-- name: add_status
INSERT INTO job_status (job_id, shard, conditions, dirty_at, urgent)
SELECT n.job_id, n.shard, n.conditions::jsonb, %(now)s, n.urgent
FROM unnest(%(job_ids)s::uuid[], %(shards)s::smallint[], %(conditions)s::text[], %(urgent)s::boolean[])
     AS n (job_id, shard, conditions, urgent)
ON CONFLICT (job_id) DO NOTHING;

-- name: edit_jobs
-- An edit is never retroactive: slots count from now on, under the new spec. It ends a pause. When the object of a one-shot
-- expires is reckoned anew, by what it says now.
UPDATE jobs
SET generation = n.generation, resource_version = n.resource_version, spec_id = n.spec_id, labels = n.labels::jsonb,
    last_slot_at = greatest(jobs.last_slot_at, %(now)s), next_slot_at = n.next_slot_at,
    next_run_at = n.next_slot_at + n.delay, zone = n.zone, ttl_seconds = n.ttl, expires_at = NULL,
    suspended = n.suspended, paused_at = NULL, parked = n.parked, deleted_at = NULL,
    shard = n.shard, pool = n.pool, handler = n.handler, concurrency_group = n.concurrency_group
FROM unnest(%(job_ids)s::uuid[], %(generations)s::bigint[], %(resource_versions)s::bigint[], %(spec_ids)s::bigint[],
            %(labels)s::text[], %(next_slots)s::timestamptz[], %(delays)s::interval[], %(zones)s::text[],
            %(ttls)s::int[], %(suspended)s::boolean[], %(parked)s::text[], %(shards)s::smallint[], %(pools)s::text[],
            %(handlers)s::text[], %(groups)s::text[])
     AS n (job_id, generation, resource_version, spec_id, labels, next_slot_at, delay, zone, ttl, suspended, parked,
           shard, pool, handler, concurrency_group)
WHERE jobs.job_id = n.job_id;

-- name: touch_jobs
-- The object changed, but nothing that firing needs.
UPDATE jobs
SET resource_version = n.resource_version, labels = n.labels::jsonb
FROM unnest(%(job_ids)s::uuid[], %(resource_versions)s::bigint[], %(labels)s::text[])
     AS n (job_id, resource_version, labels)
WHERE jobs.job_id = n.job_id AND jobs.resource_version < n.resource_version AND jobs.deleted_at IS NULL;

-- name: delete_jobs
UPDATE jobs
SET deleted_at = %(now)s, last_slot_at = greatest(jobs.last_slot_at, %(now)s), next_slot_at = NULL, next_run_at = NULL,
    paused_at = NULL, ttl_seconds = NULL, expires_at = NULL,
    resource_version = greatest(jobs.resource_version, n.resource_version)
FROM unnest(%(job_ids)s::uuid[], %(resource_versions)s::bigint[]) AS n (job_id, resource_version)
WHERE jobs.job_id = n.job_id AND jobs.deleted_at IS NULL;

-- name: clean_status
-- There is no object any more that could show it.
UPDATE job_status SET dirty_at = NULL, urgent = false
WHERE job_id = ANY(%(job_ids)s::uuid[]) AND dirty_at IS NOT NULL;

-- name: lock_conditions
SELECT job_id, conditions FROM job_status
WHERE job_id = ANY(%(job_ids)s::uuid[])
ORDER BY job_id
FOR UPDATE;

-- name: set_conditions
-- Only a job that is an object has one to be written.
UPDATE job_status
SET conditions = n.conditions::jsonb, dirty_at = CASE WHEN j.declared THEN %(now)s::timestamptz END,
    urgent = j.declared AND (job_status.urgent OR n.urgent)
FROM unnest(%(job_ids)s::uuid[], %(conditions)s::text[], %(urgent)s::boolean[]) AS n (job_id, conditions, urgent)
JOIN jobs j USING (job_id)
WHERE job_status.job_id = n.job_id;

-- name: park_jobs
UPDATE jobs
SET parked = %(sentence)s, next_slot_at = NULL, next_run_at = NULL
WHERE job_id = ANY(%(job_ids)s::uuid[]) AND deleted_at IS NULL;

-- name: page
-- Jobs of the watched namespaces by name, after the last page's end; NULL owners means all namespaces. Those of tenants lie
-- apart, however many they are.
SELECT job_id, owner, name, resource_version
FROM jobs
WHERE (owner, name, job_id) > (%(owner)s, %(name)s, %(job_id)s) AND owner < 'k8s0' AND deleted_at IS NULL AND declared
  AND (%(owners)s::text[] IS NULL OR owner = ANY(%(owners)s::text[]))
ORDER BY owner, name, job_id
LIMIT %(size)s;

-- name: firing_page
-- Those of a page that still fire or wait: what stops when the resource itself is gone.
SELECT job_id, owner, name, resource_version
FROM jobs
WHERE (owner, name, job_id) > (%(owner)s, %(name)s, %(job_id)s) AND owner < 'k8s0' AND deleted_at IS NULL
  AND parked IS NULL AND declared
ORDER BY owner, name, job_id
LIMIT %(size)s;

-- name: unchecked
-- Templates that were stored and not yet shown to the API server, with the jobs that have them.
SELECT j.owner, s.template_hash, array_agg(j.job_id) AS job_ids
FROM jobs j JOIN job_specs s USING (spec_id) JOIN job_status t ON t.job_id = j.job_id
WHERE j.deleted_at IS NULL AND j.parked IS NULL AND s.template_hash IS NOT NULL
  AND NOT t.conditions @> '[{"type": "TemplateValid"}]'
GROUP BY j.owner, s.template_hash;

-- name: last_spec_before
SELECT spec_id FROM job_specs WHERE stored_at < %(before)s ORDER BY spec_id DESC LIMIT 1;

-- name: unchecked_page
-- The same of jobs made over REST, among the next specs with a template; and where the page ends.
WITH page AS MATERIALIZED (
    SELECT spec_id, job_id, template_hash
    FROM job_specs
    WHERE template_hash IS NOT NULL AND spec_id > %(after)s
    ORDER BY spec_id
    LIMIT %(size)s)
SELECT page.spec_id, wanting.owner, page.template_hash, wanting.job_id
FROM page LEFT JOIN LATERAL (
    SELECT j.owner, j.job_id
    FROM jobs j JOIN job_status t USING (job_id)
    WHERE j.job_id = page.job_id AND j.spec_id = page.spec_id AND NOT j.declared AND j.deleted_at IS NULL
      AND j.parked IS NULL AND NOT t.conditions @> '[{"type": "TemplateValid"}]') AS wanting ON true
ORDER BY page.spec_id;

-- name: template_of
-- One of the jobs that still have this template, and the template.
SELECT j.job_id, j.name, s.template::text AS template
FROM jobs j JOIN job_specs s USING (spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[]) AND s.template_hash = %(template_hash)s AND j.deleted_at IS NULL
LIMIT 1;

-- name: lock_template
-- The jobs that still have this template: an edit may have come between.
SELECT j.job_id, j.generation, j.parked
FROM jobs j JOIN job_specs s USING (spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[]) AND s.template_hash = %(template_hash)s AND j.deleted_at IS NULL
ORDER BY j.job_id
FOR UPDATE OF j;
