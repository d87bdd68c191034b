-- name: add
INSERT INTO audit (at, owner, actor, action, job_id, run_id, detail)
SELECT %(now)s, n.owner, n.actor, n.action, n.job_id, n.run_id, n.detail::jsonb
FROM unnest(%(owners)s::text[], %(actors)s::text[], %(actions)s::text[], %(job_ids)s::uuid[], %(run_ids)s::uuid[],
            %(details)s::text[]) AS n (owner, actor, action, job_id, run_id, detail);

-- name: of_owner
-- Newest first, after a place.
SELECT audit_id, at, actor, action, job_id, run_id, detail
FROM audit
WHERE owner = %(owner)s AND (at, audit_id) < (%(before_at)s, %(before_id)s) AND at >= %(oldest)s
ORDER BY at DESC, audit_id DESC
LIMIT %(size)s;

-- name: of_job
SELECT audit_id, at, actor, action, job_id, run_id, detail
FROM audit
WHERE job_id = %(job_id)s AND owner = %(owner)s AND (at, audit_id) < (%(before_at)s, %(before_id)s) AND at >= %(oldest)s
ORDER BY at DESC, audit_id DESC
LIMIT %(size)s;
