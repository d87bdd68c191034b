-- Weekly partitions: which there are.

-- name: lock
-- Two processes that make the same partition would meet in the catalogue.
SELECT pg_advisory_xact_lock(hashtext('clockhand.partitions')::bigint);

-- name: existing
SELECT parent.relname AS parent, child.relname AS name
FROM pg_inherits i
JOIN pg_class parent ON parent.oid = i.inhparent
JOIN pg_class child ON child.oid = i.inhrelid
WHERE i.inhparent IN ('run_history'::regclass, 'attempts'::regclass, 'skips'::regclass);
