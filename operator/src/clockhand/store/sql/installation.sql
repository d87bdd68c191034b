-- name: now
-- Database time at the start of the transaction, in whole milliseconds.
SELECT date_trunc('milliseconds', now()) AS now;

-- name: lock_epoch
SELECT epoch, timeline, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) AS current_timeline
FROM installation FOR UPDATE;

-- name: raise_epoch
UPDATE installation SET epoch = epoch + %(by)s, timeline = %(timeline)s
RETURNING epoch;

-- name: epoch
SELECT epoch FROM installation;
