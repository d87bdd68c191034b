-- name: stamp
-- This replica lives: the row by which others count it when they share out the shards.
INSERT INTO replicas AS r (replica, started_at, last_seen)
VALUES (%(replica)s, now(), now())
ON CONFLICT (replica) DO UPDATE SET last_seen = now();

-- name: renew
-- Keeps every shard this replica still holds; one that was taken over meanwhile is not among the rows returned.
UPDATE shard_leases
SET expires_at = now() + make_interval(secs => %(lease)s)
WHERE holder = %(replica)s
RETURNING shard, generation;

-- name: live
-- Replicas seen within one lease, and shards that nobody holds now.
SELECT (SELECT array_agg(replica ORDER BY replica) FROM replicas
        WHERE last_seen > now() - make_interval(secs => %(lease)s)) AS replicas,
       (SELECT coalesce(array_agg(shard), '{}') FROM shard_leases WHERE expires_at <= now()) AS free,
       (SELECT timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) FROM installation) AS promoted;

-- name: take
-- Free shards only; the rise of the generation is what shuts out the former holder.
UPDATE shard_leases
SET holder = %(replica)s, generation = generation + 1, expires_at = now() + make_interval(secs => %(lease)s)
WHERE shard IN (SELECT shard FROM shard_leases
                WHERE shard = ANY(%(shards)s::smallint[]) AND expires_at <= now()
                ORDER BY shard FOR UPDATE SKIP LOCKED)
RETURNING shard, generation;

-- name: release
UPDATE shard_leases
SET holder = NULL, expires_at = '-infinity'
WHERE holder = %(replica)s AND shard = ANY(%(shards)s::smallint[]);

-- name: leave
-- A replica that stops on purpose gives everything back at once.
WITH released AS (
    UPDATE shard_leases SET holder = NULL, expires_at = '-infinity' WHERE holder = %(replica)s)
DELETE FROM replicas WHERE replica = %(replica)s;

-- name: forget
DELETE FROM replicas WHERE last_seen < now() - interval '1 hour';
