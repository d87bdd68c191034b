-- name: all
SELECT name, hash FROM job_classes ORDER BY name;

-- name: store
INSERT INTO job_classes (name, spec, hash)
SELECT n.name, n.spec::json, n.hash
FROM unnest(%(names)s::text[], %(specs)s::text[], %(hashes)s::bytea[]) AS n (name, spec, hash)
ORDER BY n.name
ON CONFLICT (name) DO UPDATE SET spec = EXCLUDED.spec, hash = EXCLUDED.hash;

-- name: remove
DELETE FROM job_classes WHERE name = ANY(%(names)s::text[]);

-- name: keep
-- Until the transaction ends no class changes, and none comes that was not there, which no lock of a row could hold off.
SELECT pg_advisory_xact_lock_shared(hashtext('clockhand.classes')::bigint);

-- name: change
-- Once those that are being stored by what the classes were are there to be seen.
SELECT pg_advisory_xact_lock(hashtext('clockhand.classes')::bigint);

-- name: some
SELECT name, spec::text AS spec, hash FROM job_classes WHERE name = ANY(%(names)s::text[]);

-- name: stale_page
-- Of the next specs with a class, the jobs that were stored under another state of it, and where the page ends.
WITH page AS MATERIALIZED (
    SELECT spec_id, job_id, class, class_hash
    FROM job_specs
    WHERE class IS NOT NULL AND spec_id > %(after)s
    ORDER BY spec_id
    LIMIT %(size)s)
SELECT (SELECT max(spec_id) FROM page) AS last, array_agg(j.job_id) FILTER (WHERE j.job_id IS NOT NULL) AS job_ids
FROM page p
LEFT JOIN job_classes c ON c.name = p.class
LEFT JOIN jobs j ON j.job_id = p.job_id AND j.spec_id = p.spec_id AND j.deleted_at IS NULL
                    AND p.class_hash IS DISTINCT FROM c.hash;

-- name: lock
-- In one order for everybody; what an edit that the lock waited for has stored is read anew by `read`.
SELECT job_id FROM jobs WHERE job_id = ANY(%(job_ids)s::uuid[]) AND deleted_at IS NULL ORDER BY job_id FOR UPDATE;

-- name: read
SELECT j.job_id, j.owner, j.name, j.generation, j.resource_version, j.created_at, j.labels, j.parked, s.spec_id,
       s.spec::text AS spec, s.payload::text AS payload, s.template_hash, s.class IS NOT NULL AS of_class
FROM jobs j JOIN job_specs s USING (spec_id)
WHERE j.job_id = ANY(%(job_ids)s::uuid[])
ORDER BY j.job_id;

-- name: still_good
-- Whose class has changed and whose pods have not.
UPDATE job_specs s SET class_hash = n.class_hash
FROM unnest(%(spec_ids)s::bigint[], %(class_hashes)s::bytea[]) AS n (spec_id, class_hash)
WHERE s.spec_id = n.spec_id;
