-- What is measured of the installation as a whole, by one replica, now and then.

-- name: live
-- Each part by an index of its own, and no more rows of it than a look may cost.
WITH counted AS (
    (SELECT state, reason, ready_at, false AS pooled FROM live_runs r
     WHERE r.state = 'Queued' AND r.pool IS NULL LIMIT %(limit)s)
    UNION ALL
    (SELECT state, reason, ready_at, true FROM live_runs r
     WHERE r.state = 'Queued' AND r.pool IS NOT NULL LIMIT %(limit)s)
    UNION ALL
    (SELECT state, reason, ready_at, r.pool IS NOT NULL FROM live_runs r
     WHERE r.state = 'Blocked' LIMIT %(limit)s)
    UNION ALL
    (SELECT state, reason, ready_at, r.pool IS NOT NULL FROM live_runs r
     WHERE r.state = 'Retrying' LIMIT %(limit)s)
    UNION ALL
    (SELECT state, reason, ready_at, false FROM live_runs r
     WHERE r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NULL LIMIT %(limit)s)
    UNION ALL
    (SELECT state, reason, ready_at, true FROM live_runs r
     WHERE r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NOT NULL LIMIT %(limit)s))
SELECT state::text AS state, CASE WHEN state = 'Blocked' THEN reason END AS reason, pooled, count(*) AS runs,
       min(ready_at) AS oldest
FROM counted GROUP BY 1, 2, 3;

-- name: horizon
-- What keeps dead rows: transactions of this database, standbys that ask for it, replication slots, prepared
-- transactions. When others' transactions began is told to members of pg_monitor alone; how far back they reach, to all.
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::float8 AS seconds,
       coalesce(max(age(horizon)), 0)::bigint AS transactions
FROM (SELECT xact_start AS began, coalesce(backend_xmin, backend_xid) AS horizon
      FROM pg_stat_activity
      WHERE pid <> pg_backend_pid()
        AND (datname = current_database() AND backend_type = 'client backend' OR backend_type = 'walsender')
        AND coalesce(backend_xmin, backend_xid) IS NOT NULL
      UNION ALL
      SELECT NULL, xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
      UNION ALL
      SELECT prepared, transaction FROM pg_prepared_xacts WHERE database = current_database()) AS held;
