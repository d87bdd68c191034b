-- name: add_keys
INSERT INTO limit_keys (key) SELECT unnest(%(keys)s::text[]) ON CONFLICT DO NOTHING;

-- name: lock_keys
-- In one order for everybody: nobody who counts waits for somebody who waits for him.
SELECT key FROM limit_keys WHERE key = ANY(%(keys)s::text[]) ORDER BY key FOR NO KEY UPDATE;

-- name: open_of_owners
-- A statement of its own, after the lock: it sees what those have stored who had the lock before. It reads no further than
-- to the limit.
SELECT capped.key, (SELECT count(*)
                    FROM (SELECT FROM live_runs
                          WHERE owner = capped.key AND state IN ('Claimed', 'Running', 'Stopping')
                          LIMIT capped.cap) AS held) AS held
FROM unnest(%(keys)s::text[], %(caps)s::bigint[]) AS capped (key, cap);

-- name: open_of_pools
SELECT capped.key, (SELECT count(*)
                    FROM (SELECT FROM live_runs
                          WHERE pool = capped.key AND pool IS NOT NULL AND state IN ('Claimed', 'Running', 'Stopping')
                          LIMIT capped.cap) AS held) AS held
FROM unnest(%(keys)s::text[], %(caps)s::bigint[]) AS capped (key, cap);

-- name: places_of_groups
-- A Queued run has its place already, so that a claim need not look at its group.
SELECT capped.key, (SELECT count(*)
                    FROM (SELECT FROM live_runs
                          WHERE concurrency_group = capped.key AND concurrency_group IS NOT NULL
                            AND state IN ('Queued', 'Claimed', 'Running', 'Stopping')
                          LIMIT capped.cap) AS held) AS held
FROM unnest(%(keys)s::text[], %(caps)s::bigint[]) AS capped (key, cap);
