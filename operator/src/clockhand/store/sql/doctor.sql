-- What `clockhand doctor` looks at: catalogues, and rows by an index, a bounded number of them.

-- name: server
SELECT clock_timestamp() AS clock, current_setting('server_version_num')::int AS number,
       current_setting('server_version') AS version, pg_is_in_recovery() AS standby,
       current_setting('transaction_read_only')::boolean AS read_only;

-- name: settings
-- As a connection of Clockhand has them.
SELECT current_setting('fsync')::boolean AS fsync,
       current_setting('full_page_writes')::boolean AS full_page_writes,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('synchronous_standby_names') AS synchronous_standby_names,
       current_setting('statement_timeout') AS statement_timeout,
       current_setting('idle_in_transaction_session_timeout') AS idle_timeout,
       current_setting('autovacuum')::boolean AS autovacuum,
       current_setting('track_counts')::boolean AS track_counts,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
           - coalesce(current_setting('reserved_connections', true)::int, 0) AS connections,
       (SELECT sum(numbackends)::int FROM pg_stat_database) AS connected;

-- name: standbys
-- `seen` is false where this user may not see how they stand.
SELECT application_name AS name, coalesce(sync_state, '') AS sync_state, state IS NOT NULL AS seen
FROM pg_stat_replication WHERE state IS NULL OR state = 'streaming' OR state = 'catchup'
ORDER BY name LIMIT 100;

-- name: transactions
-- Those that are open, oldest first: no row that one of them may still see can be vacuumed, and no change be numbered that
-- came after one which writes.
SELECT *
FROM (SELECT 'session' AS kind, pid::text AS name, coalesce(application_name, '') AS application,
             coalesce(datname, '') AS base, xact_start AS since
      FROM pg_stat_activity
      WHERE pid <> pg_backend_pid() AND xact_start IS NOT NULL AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        AND backend_type IN ('client backend', 'walsender', 'parallel worker')
      UNION ALL
      SELECT 'prepared transaction', gid, owner, database, prepared FROM pg_prepared_xacts) AS held
WHERE since < %(before)s
ORDER BY since
LIMIT %(limit)s;

-- name: slots
-- Slots that nobody reads: they hold back vacuum, or the removal of what was written ahead.
SELECT slot_name AS name, coalesce(greatest(age(xmin), age(catalog_xmin)), 0) AS age, coalesce(wal_status, '') AS wal
FROM pg_replication_slots WHERE NOT active AND NOT temporary
ORDER BY name LIMIT 100;

-- name: tables
SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead, n_mod_since_analyze AS changed,
       greatest(last_vacuum, last_autovacuum) AS vacuumed_at, greatest(last_analyze, last_autoanalyze) AS analysed_at
FROM pg_stat_user_tables
WHERE schemaname = current_schema() AND relname = ANY(%(tables)s)
ORDER BY relname;

-- name: options
SELECT relname AS name, coalesce(reloptions, '{}') AS options
FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname = ANY(%(tables)s)
ORDER BY relname;

-- name: epoch
SELECT epoch, timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS promoted FROM installation;

-- name: replicas
SELECT replica, role, last_seen, coalesce(zone_version, '') AS zone_version, coalesce(release, '') AS release
FROM replicas ORDER BY replica;

-- name: leases
-- What nobody holds now.
SELECT 'operator' AS role, count(*) AS shards FROM shard_leases WHERE shard < 256 AND expires_at <= %(now)s
UNION ALL
SELECT 'api', count(*) FROM shard_leases WHERE shard >= 256 AND expires_at <= %(now)s
UNION ALL
SELECT duty, 1 FROM duty_leases WHERE expires_at <= %(now)s;

-- name: pooled
-- Whether any job waits for the workers of a pool.
SELECT EXISTS (SELECT FROM jobs WHERE shard >= 256 AND next_run_at IS NOT NULL) AS any;

-- name: overdue
SELECT due.owner, due.name, due.next_run_at AS at
FROM generate_series(0, 511) AS s (shard)
CROSS JOIN LATERAL (
    SELECT owner, name, next_run_at FROM jobs
    WHERE jobs.shard = s.shard AND next_run_at < %(before)s
    ORDER BY next_run_at LIMIT %(limit)s) AS due
LIMIT %(limit)s;

-- name: parked
SELECT owner, name, parked FROM jobs WHERE parked IS NOT NULL AND deleted_at IS NULL ORDER BY job_id LIMIT %(limit)s;

-- name: unnumbered
SELECT min(changed_at) AS oldest, count(*) AS count
FROM (SELECT changed_at FROM run_changes WHERE first_number IS NULL ORDER BY change_id LIMIT %(limit)s) AS waiting;

-- name: conflicts
-- Live runs, of the oldest, that history has already.
SELECT r.owner, r.name
FROM (SELECT run_id, scheduled_at, owner, name FROM live_runs ORDER BY run_id LIMIT %(limit)s) AS r
CROSS JOIN LATERAL (
    SELECT FROM run_history h WHERE h.run_id = r.run_id AND h.scheduled_at = r.scheduled_at LIMIT 1) AS over;

-- name: kept
SELECT (SELECT min(stored_at) FROM kept_answers) AS answers, (SELECT min(stored_at) FROM idempotency_keys) AS keys;

-- name: tokens
SELECT owner, name, role, expires_at FROM tokens
WHERE revoked_at IS NULL AND expires_at < %(before)s AND expires_at >= %(after)s
ORDER BY expires_at LIMIT %(limit)s;

-- name: open_runs
-- Some open attempts of each shard whose pods should be there.
SELECT r.run_id, r.owner, r.job_name, r.name, r.attempt, r.token, r.claimed_at
FROM generate_series(0, 255) AS s (shard)
CROSS JOIN LATERAL (
    SELECT run_id, owner, job_name, name, attempt, token, claimed_at, state FROM live_runs
    WHERE live_runs.shard = s.shard AND state IN ('Claimed', 'Running', 'Stopping') AND pool IS NULL
    LIMIT %(limit)s) AS r
WHERE r.claimed_at < %(before)s AND r.state <> 'Stopping'
LIMIT %(limit)s;
