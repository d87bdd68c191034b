-- The change log of runs: numbered in an order in which no later commit can slip in between.

-- name: lock
SELECT pg_try_advisory_xact_lock(hashtext('clockhand.changes')::bigint) AS held;

-- name: number
-- A row is numbered only when every transaction that could still commit an earlier one has ended: below the xmin horizon
-- nothing is open any more. The numbers become visible together, when this transaction commits.
WITH ready AS MATERIALIZED (
    SELECT change_id, cardinality(runs) AS runs
    FROM run_changes
    WHERE first_number IS NULL AND xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY change_id LIMIT %(rows)s),
placed AS (
    SELECT change_id, runs, sum(runs) OVER (ORDER BY change_id) AS through, sum(runs) OVER () AS total
    FROM ready),
advanced AS (
    UPDATE installation SET last_change = last_change + (SELECT sum(runs) FROM ready)
    WHERE EXISTS (SELECT FROM ready)
    RETURNING last_change)
UPDATE run_changes c
SET first_number = advanced.last_change - placed.total + placed.through - placed.runs + 1
FROM placed, advanced
WHERE c.change_id = placed.change_id;

-- name: standing
-- `at` is read after the snapshot was taken: what had ended by then and is not seen, is seen as live.
SELECT epoch, last_change, EXISTS (SELECT FROM run_changes WHERE first_number IS NULL) AS pending,
       clock_timestamp() - coalesce(clock_step, '0') AS at
FROM installation;

-- name: oldest
SELECT first_number FROM run_changes WHERE first_number IS NOT NULL ORDER BY first_number LIMIT 1;

-- name: read_after
-- From the row that holds the next number: a client may have stopped in the middle of one.
SELECT first_number, changed_at, runs, states::text[] AS states
FROM run_changes
WHERE first_number >= coalesce(
    (SELECT first_number FROM run_changes WHERE first_number <= %(after)s + 1 ORDER BY first_number DESC LIMIT 1),
    %(after)s + 1)
ORDER BY first_number LIMIT %(rows)s;

-- name: trim
-- In order and a bounded number at a time; an unnumbered row stays, however old.
DELETE FROM run_changes WHERE change_id IN (
    SELECT change_id FROM run_changes
    WHERE first_number IS NOT NULL AND changed_at < %(before)s
    ORDER BY first_number LIMIT %(rows)s);
