-- What is measured of the installation as a whole, by one replica, now and then.

-- name: look
-- One statement for all of it. Of live runs each part is counted by an index of its own, and no more rows of it than a look
-- may cost. Dead rows are kept for transactions of this database, standbys that ask for it, replication slots and prepared
-- transactions: when others' transactions began is told to members of pg_monitor alone, how far back they reach to all.
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
     WHERE r.state IN ('Claimed', 'Running', 'Stopping') AND r.pool IS NOT NULL LIMIT %(limit)s)),
live AS (
    SELECT state, CASE WHEN state = 'Blocked' THEN reason END AS reason, pooled, count(*) AS runs,
           greatest(extract(epoch FROM (SELECT now() - coalesce(clock_step, '0') FROM installation) - min(ready_at)), 0)
               AS oldest
    FROM counted GROUP BY 1, 2, 3),
held AS (
    SELECT xact_start AS began, coalesce(backend_xmin, backend_xid) AS horizon
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid()
      AND (datname = current_database() AND backend_type = 'client backend' OR backend_type = 'walsender')
      AND coalesce(backend_xmin, backend_xid) IS NOT NULL
    UNION ALL
    SELECT NULL, xmin FROM pg_replication_slots WHERE xmin IS NOT NULL
    UNION ALL
    SELECT prepared, transaction FROM pg_prepared_xacts WHERE database = current_database())
SELECT date_trunc('milliseconds', now()) AS clock, clock_step, clock_noticed_at,
       (SELECT coalesce(jsonb_agg(to_jsonb(live)), '[]') FROM live) AS live,
       (SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0) FROM held)::float8 AS seconds,
       (SELECT coalesce(max(age(horizon)), 0) FROM held)::bigint AS transactions,
       ARRAY(SELECT inhrelid::regclass::text FROM pg_inherits
             WHERE inhparent IN ('run_history'::regclass, 'attempts'::regclass, 'skips'::regclass)) AS partitions
FROM installation;
