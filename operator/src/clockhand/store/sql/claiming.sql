-- name: waiting
-- Who has Queued runs in the given shards, one probe an owner and shard, however many runs of it wait. Of each shard those
-- after the given owner.
SELECT mine.shard, found.owner
FROM unnest(%(shards)s::smallint[], %(afters)s::text[]) AS mine (shard, after)
CROSS JOIN LATERAL (
    WITH RECURSIVE found (owner) AS (
        (SELECT owner FROM live_runs r
         WHERE r.shard = mine.shard AND state = 'Queued' AND pool IS NULL AND owner > mine.after
         ORDER BY owner LIMIT 1)
        UNION ALL
        SELECT following.owner
        FROM found CROSS JOIN LATERAL (
            SELECT owner FROM live_runs r
            WHERE r.shard = mine.shard AND state = 'Queued' AND pool IS NULL AND owner > found.owner
            ORDER BY owner LIMIT 1) AS following)
    SELECT owner FROM found) AS found
LIMIT %(limit)s;

-- name: claim
-- The best Queued runs of each owner and shard, as many as it is given. The token is random, so no two claims are ever
-- alike, and every later write about the attempt names it.
WITH candidates AS MATERIALIZED (
    SELECT best.run_id
    FROM unnest(%(shards)s::smallint[], %(generations)s::bigint[], %(owners)s::text[], %(shares)s::int[])
         AS mine (shard, generation, owner, share)
    JOIN shard_leases USING (shard, generation)
    CROSS JOIN LATERAL (
        SELECT run_id FROM live_runs r
        WHERE r.shard = mine.shard AND r.owner = mine.owner AND state = 'Queued' AND pool IS NULL
        ORDER BY queue_at
        LIMIT mine.share
        FOR UPDATE SKIP LOCKED) AS best
    WHERE shard_leases.holder = %(replica)s),
numbered AS MATERIALIZED (
    SELECT run_id, (%(tokens)s::bigint[])[row_number() OVER ()] AS token FROM candidates),
moved AS (
    UPDATE live_runs r
    SET state = 'Claimed', reason = NULL, message = NULL, attempt = r.attempt + 1, token = n.token,
        fencing = (installation.epoch::bigint << 40) + nextval('claim_count'), claimed_at = %(now)s, started_at = NULL,
        pod_uid = NULL, node = NULL, deadline_at = %(now)s + make_interval(secs => r.pending_timeout)
    -- nothing is claimed on a promoted database until its epoch is raised
    FROM numbered n, (SELECT epoch FROM installation
                      WHERE timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)) AS installation
    WHERE r.run_id = n.run_id AND r.state = 'Queued'
    RETURNING r.*),
logged AS (
    INSERT INTO run_changes (runs, states)
    SELECT array_agg(run_id), array_agg(state) FROM moved HAVING count(*) > 0)
SELECT run_id, job_id, owner, job_name, name, scheduled_at, shard, spec_id, attempt, token, fencing, payload,
       payload IS NOT NULL AS own_payload, state::text AS state, pod_uid, claimed_at, stop_reason
FROM moved;
