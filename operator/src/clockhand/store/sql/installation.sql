-- name: now
-- Database time at the start of the transaction, in whole milliseconds.
SELECT date_trunc('milliseconds', now()) AS now;

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
