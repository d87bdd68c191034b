-- name: beat
-- One statement for all that keeps a replica in its place, since an idle one costs little else: it lives, it keeps every
-- shard that it still holds (one that was taken over meanwhile is not among them), and it sees who else lives, which
-- shards and duties nobody holds now, and whether the database was a standby until lately.
WITH stamped AS (
    INSERT INTO replicas AS r (replica, started_at, last_seen)
    VALUES (%(replica)s, now(), now())
    ON CONFLICT (replica) DO UPDATE SET last_seen = now()),
kept AS (
    UPDATE shard_leases
    SET expires_at = now() + make_interval(secs => %(lease)s)
    WHERE holder = %(replica)s
    RETURNING shard, generation)
SELECT (SELECT coalesce(array_agg(shard ORDER BY shard), '{}') FROM kept) AS shards,
       (SELECT coalesce(array_agg(generation ORDER BY shard), '{}') FROM kept) AS generations,
       -- its own stamp is not in the snapshot of this statement
       (SELECT array_agg(replica) FROM replicas
        WHERE last_seen > now() - make_interval(secs => %(lease)s) AND replica <> %(replica)s) AS others,
       (SELECT coalesce(array_agg(shard), '{}') FROM shard_leases
        WHERE expires_at <= now() AND holder IS DISTINCT FROM %(replica)s) AS free,
       (SELECT coalesce(array_agg(duty), '{}') FROM duty_leases WHERE expires_at <= now()) AS free_duties,
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
