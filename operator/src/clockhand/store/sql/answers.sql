-- name: lock
-- Nobody waits: the key of a request that is being served is not to be had. Keys of different owners differ by what stands
-- before them, which no owner's name can hold.
SELECT n.number, pg_try_advisory_xact_lock(hashtextextended(n.owner || E'\n' || n.key, 0)) AS locked
FROM unnest(%(owners)s::text[], %(keys)s::text[]) WITH ORDINALITY AS n (owner, key, number)
ORDER BY n.number;

-- name: kept
-- A statement of its own, after the lock: it sees what the request that held it has stored.
SELECT n.number, n.owner, n.key, k.digest, k.status, k.location, k.body
FROM unnest(%(owners)s::text[], %(keys)s::text[]) WITH ORDINALITY AS n (owner, key, number)
JOIN kept_answers k ON k.owner = n.owner AND k.key = n.key
WHERE k.stored_at > %(since)s;

-- name: keep
-- Over one whose day is over and that nobody has cleared away yet.
INSERT INTO kept_answers (owner, key, digest, status, location, body, stored_at)
SELECT n.owner, n.key, n.digest, n.status, n.location, n.body, %(now)s
FROM unnest(%(owners)s::text[], %(keys)s::text[], %(digests)s::bytea[], %(statuses)s::int[], %(locations)s::text[],
            %(bodies)s::text[]) AS n (owner, key, digest, status, location, body)
ON CONFLICT (owner, key) DO UPDATE
SET digest = EXCLUDED.digest, status = EXCLUDED.status, location = EXCLUDED.location, body = EXCLUDED.body,
    stored_at = EXCLUDED.stored_at;
