-- name: find
-- The credential with this hash, if it is good now.
SELECT token_id, owner, role, pool, name, created_at, expires_at, revoked_at
FROM tokens, (SELECT now() - coalesce(clock_step, '0') AS time FROM installation) AS installed
WHERE hash = %(hash)s AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > installed.time);

-- name: add
INSERT INTO tokens (token_id, hash, owner, role, pool, name, created_at, expires_at)
VALUES (%(token_id)s, %(hash)s, %(owner)s, %(role)s, %(pool)s, %(name)s, %(created_at)s, %(expires_at)s);

-- name: all
-- Of every owner where none is given.
SELECT token_id, owner, role, pool, name, created_at, expires_at, revoked_at
FROM tokens
WHERE %(owner)s::text IS NULL OR owner = %(owner)s
ORDER BY owner, created_at, token_id;

-- name: revoke
-- Once: a second call finds nothing to do.
UPDATE tokens SET revoked_at = %(now)s
WHERE token_id = %(token_id)s AND revoked_at IS NULL
RETURNING token_id, owner, role, pool, name, created_at, expires_at, revoked_at;

-- name: one
SELECT token_id, owner, role, pool, name, created_at, expires_at, revoked_at
FROM tokens WHERE token_id = %(token_id)s;
