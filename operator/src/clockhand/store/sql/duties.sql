-- name: take
-- A free or expired duty goes to whoever asks first; the generation rises, so that the last holder's writes are refused.
UPDATE duty_leases
SET holder = %(replica)s, generation = generation + 1, expires_at = installed.time + %(lease)s
FROM (SELECT now() - coalesce(clock_step, '0') AS time FROM installation) AS installed
WHERE duty = %(duty)s AND (holder IS NULL OR expires_at <= installed.time)
RETURNING generation;

-- name: renew
-- Also after the lease ran out, as long as nobody took the duty over. Whoever mirrors learns with it whether there are
-- new specs, so that an idle one need not ask.
UPDATE duty_leases
SET expires_at = installed.time + %(lease)s
FROM (SELECT now() - coalesce(clock_step, '0') AS time FROM installation) AS installed
WHERE duty = %(duty)s AND holder = %(replica)s AND generation = %(generation)s
RETURNING (SELECT max(spec_id) FROM job_specs) AS newest_spec;

-- name: resign
UPDATE duty_leases
SET holder = NULL, expires_at = '-infinity'
WHERE duty = %(duty)s AND holder = %(replica)s AND generation = %(generation)s;

-- name: hold
-- The row stays locked until the caller's transaction ends: nobody can take over in the middle of it.
SELECT 1 AS held FROM duty_leases
WHERE duty = %(duty)s AND generation = %(generation)s
FOR SHARE;
