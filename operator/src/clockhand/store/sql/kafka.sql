-- name: pools
-- Those whose runs go out as messages, and the handlers that have topics.
SELECT pool, owner, service_account, allowed_owners, dispatch, lease_seconds, heartbeat_seconds, kafka_error, handlers
FROM pools
WHERE dispatch = 'Kafka' AND deleted_at IS NULL;

-- name: unstarted
-- How many messages are on their way, and since when: attempts that nobody has started.
SELECT pool, handler, count(*) AS count, extract(epoch FROM %(now)s - min(claimed_at))::float8 AS oldest
FROM live_runs
WHERE pool = ANY(%(pools)s::text[]) AND pool IS NOT NULL AND worker IS NULL AND state IN ('Claimed', 'Running', 'Stopping')
GROUP BY pool, handler;

-- name: show
-- Why pools are polled although they say Kafka. Each process tells of its own connection, by its name; nobody writes over
-- what another one says that lives.
UPDATE pools p SET kafka_error = n.error
FROM unnest(%(pools)s::text[], %(errors)s::text[]) AS n (pool, error)
WHERE p.pool = n.pool AND p.kafka_error IS DISTINCT FROM n.error
  AND (p.kafka_error IS NULL
       OR NOT EXISTS (SELECT FROM replicas r
                      WHERE r.replica = split_part(p.kafka_error, ': ', 1) AND r.replica <> %(replica)s
                        AND r.last_seen > %(now)s - interval '1 minute'));
