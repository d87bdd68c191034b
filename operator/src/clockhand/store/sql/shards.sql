-- name: beat
-- One statement for all that keeps a replica in its place, since an idle one costs little else: it lives, it keeps every
-- shard that it still holds (one that was taken over meanwhile is not among them), and it sees who else lives, which
-- shards and duties nobody holds now, whether the database was a standby until lately, and whether there is anything of
-- which most installations have nothing: paused jobs, and one-shots that may expire.
WITH installed AS (
    SELECT now() - coalesce(clock_step, '0') AS time, zone_version, clock_step, clock_noticed_at,
           timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS promoted
    FROM installation),
stamped AS (
    INSERT INTO replicas AS r (replica, role, started_at, last_seen, zone_version, release)
    SELECT %(replica)s, %(role)s, time, time, %(zone_version)s, %(release)s FROM installed
    ON CONFLICT (replica) DO UPDATE SET last_seen = excluded.last_seen, zone_version = excluded.zone_version,
                                        release = excluded.release),
-- workers had nobody to renew their leases with until now, be it that no API process lived or that the database did not
served AS (
    UPDATE installation SET served_since = installed.time
    FROM installed
    WHERE %(role)s = 'api'
      AND NOT EXISTS (SELECT FROM replicas
                      WHERE role = 'api' AND last_seen >= installed.time - make_interval(secs => %(lease)s))),
kept AS (
    UPDATE shard_leases
    SET expires_at = installed.time + make_interval(secs => %(lease)s)
    FROM installed
    WHERE holder = %(replica)s
    RETURNING shard, generation),
-- its own stamp is not in the snapshot of this statement
others AS MATERIALIZED (
    SELECT replica, role, replicas.zone_version, started_at, last_seen,
           last_seen BETWEEN time - make_interval(secs => %(lease)s) AND time + make_interval(secs => %(lease)s) AS live
    FROM replicas CROSS JOIN installed WHERE replica <> %(replica)s)
SELECT date_trunc('milliseconds', now()) AS clock, clock_step, clock_noticed_at,
       (SELECT coalesce(array_agg(shard ORDER BY shard), '{}') FROM kept) AS shards,
       (SELECT coalesce(array_agg(generation ORDER BY shard), '{}') FROM kept) AS generations,
       (SELECT coalesce(array_agg(replica), '{}') FROM others WHERE live AND role = %(role)s) AS others,
       -- a leap silences all at once: whoever lives now and lived when the last one fell silent has seen that there was none
       EXISTS (SELECT FROM others WHERE NOT live)
       AND NOT EXISTS (SELECT FROM others AS witness, (SELECT max(last_seen) AS at FROM others WHERE NOT live) AS silence
                       WHERE live AND started_at < silence.at AND silence.at <= time) AS unwitnessed,
       (SELECT coalesce(array_agg(shard), '{}') FROM shard_leases
        WHERE shard BETWEEN %(first)s AND %(last)s
          AND expires_at <= time AND holder IS DISTINCT FROM %(replica)s) AS free,
       (SELECT coalesce(array_agg(duty), '{}') FROM duty_leases WHERE expires_at <= time) AS free_duties,
       promoted, zone_version,
       EXISTS (SELECT FROM others WHERE live AND coalesce(others.zone_version, '') < %(zone_version)s) AS older_zones,
       EXISTS (SELECT FROM jobs WHERE paused_at IS NOT NULL) AS paused,
       EXISTS (SELECT FROM kept CROSS JOIN LATERAL (
                   SELECT FROM jobs
                   WHERE jobs.shard IN (kept.shard, kept.shard + 256) AND ttl_seconds IS NOT NULL AND next_run_at IS NULL
                     AND jobs.expires_at <= installed.time AND deleted_at IS NULL
                   LIMIT 1) AS due)
       OR EXISTS (SELECT FROM kept CROSS JOIN LATERAL (
                   SELECT FROM jobs
                   WHERE jobs.shard IN (kept.shard, kept.shard + 256) AND ttl_seconds IS NOT NULL AND next_run_at IS NULL
                     AND jobs.expires_at IS NULL AND deleted_at IS NULL
                     AND NOT suspended AND paused_at IS NULL AND parked IS NULL
                   LIMIT 1) AS unset) AS expiring
FROM installed;

-- name: take
-- Free shards only; the rise of the generation is what shuts out the former holder.
UPDATE shard_leases
SET holder = %(replica)s, generation = generation + 1, expires_at = installed.time + make_interval(secs => %(lease)s)
FROM (SELECT now() - coalesce(clock_step, '0') AS time FROM installation) AS installed
WHERE shard IN (SELECT shard FROM shard_leases
                WHERE shard = ANY(%(shards)s::smallint[])
                  AND expires_at <= (SELECT now() - coalesce(clock_step, '0') FROM installation)
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
DELETE FROM replicas
WHERE last_seen < (SELECT now() - coalesce(clock_step, '0') FROM installation) - interval '1 hour';

-- name: abandon
WITH released AS (
    UPDATE shard_leases SET holder = NULL, expires_at = '-infinity' WHERE holder IS NOT NULL),
resigned AS (
    UPDATE duty_leases SET holder = NULL, expires_at = '-infinity' WHERE holder IS NOT NULL)
DELETE FROM replicas;
