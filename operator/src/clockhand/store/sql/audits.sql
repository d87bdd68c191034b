-- name: add
INSERT INTO audit (at, owner, actor, action, job_id, run_id, detail)
SELECT %(now)s, n.owner, n.actor, n.action, n.job_id, n.run_id, n.detail::jsonb
FROM unnest(%(owners)s::text[], %(actors)s::text[], %(actions)s::text[], %(job_ids)s::uuid[], %(run_ids)s::uuid[],
            %(details)s::text[]) AS n (owner, actor, action, job_id, run_id, detail);

-- name: of_owner
-- Newest first, after a place. The name of a job is told for as long as its row is kept.
SELECT audit_id, at, actor, action, job_id, run_id, detail,
       (SELECT name FROM jobs WHERE jobs.job_id = audit.job_id) AS job_name
FROM audit
WHERE owner = %(owner)s AND (at, audit_id) < (%(before_at)s, %(before_id)s) AND at >= %(oldest)s
ORDER BY at DESC, audit_id DESC
LIMIT %(size)s;

-- name: of_jobs
-- The same of jobs that had one name one after the other.
SELECT found.*, (SELECT name FROM jobs WHERE jobs.job_id = found.job_id) AS job_name
FROM (SELECT about.* FROM unnest(%(job_ids)s::uuid[]) AS mine (id), LATERAL (
          SELECT audit_id, at, actor, action, job_id, run_id, detail
          FROM audit
          WHERE job_id = mine.id AND owner = %(owner)s AND (at, audit_id) < (%(before_at)s, %(before_id)s)
            AND at >= %(oldest)s
          ORDER BY at DESC, audit_id DESC LIMIT %(size)s) AS about
      ORDER BY about.at DESC, about.audit_id DESC LIMIT %(size)s) AS found
ORDER BY found.at DESC, found.audit_id DESC;
