-- name: now
-- The clock at the start of the transaction, in whole milliseconds, and what is known of it.
SELECT date_trunc('milliseconds', now()) AS clock, clock_step, clock_noticed_at FROM installation;

-- name: cursor_key
SELECT cursor_key FROM installation;

-- name: note_step
-- Only over what the process that noticed it had read: several notice the same step, and one stores it.
UPDATE installation
SET clock_step = make_interval(secs => %(total)s), clock_noticed_at = now()
WHERE clock_step IS NOT DISTINCT FROM %(step)s::interval
  AND clock_noticed_at IS NOT DISTINCT FROM %(noticed_at)s::timestamptz
RETURNING clock_step, clock_noticed_at;

-- name: believe_step
UPDATE installation
SET clock_step = NULL
WHERE clock_step = %(step)s::interval AND clock_noticed_at = %(noticed_at)s::timestamptz;

-- name: move_leases
WITH shards AS (
    UPDATE shard_leases SET expires_at = expires_at + make_interval(secs => %(step)s) WHERE holder IS NOT NULL),
duties AS (
    UPDATE duty_leases SET expires_at = expires_at + make_interval(secs => %(step)s) WHERE holder IS NOT NULL),
served AS (
    UPDATE installation SET served_since = served_since + make_interval(secs => %(step)s)),
waiting AS (
    UPDATE pools SET rescue_from = rescue_from + make_interval(secs => %(step)s) WHERE rescue_from > '-infinity')
UPDATE replicas SET last_seen = last_seen + make_interval(secs => %(step)s);

-- name: move_expiries
-- How long the object of a one-shot stays is a duration too.
UPDATE jobs SET expires_at = expires_at + make_interval(secs => %(step)s)
WHERE ttl_seconds IS NOT NULL AND next_run_at IS NULL AND expires_at IS NOT NULL;

-- name: move_runs
-- Time-outs, back-offs and the leases of workers, a page at a time in run id order.
WITH page AS MATERIALIZED (
    SELECT run_id FROM live_runs
    WHERE run_id > %(after)s
      AND (deadline_at IS NOT NULL OR run_deadline_at IS NOT NULL OR lease_until IS NOT NULL OR state = 'Retrying')
    ORDER BY run_id LIMIT %(limit)s
    FOR UPDATE)
UPDATE live_runs r
SET deadline_at = r.deadline_at + make_interval(secs => %(step)s),
    run_deadline_at = r.run_deadline_at + make_interval(secs => %(step)s),
    lease_until = r.lease_until + make_interval(secs => %(step)s),
    ready_at = CASE WHEN r.state = 'Retrying' THEN r.ready_at + make_interval(secs => %(step)s) ELSE r.ready_at END
FROM page WHERE r.run_id = page.run_id
RETURNING r.run_id;

-- name: settle_epoch
-- A promoted standby is on another timeline, and may have lost the newest claims: what grows from them starts anew, higher.
-- The change log starts anew with it: its transaction numbers may be those of another cluster.
WITH raised AS (
    UPDATE installation
    SET epoch = epoch + 1, timeline = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    WHERE timeline <> substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) OR %(restored)s
    RETURNING epoch),
emptied AS (
    DELETE FROM run_changes WHERE EXISTS (SELECT FROM raised))
SELECT epoch FROM raised;
