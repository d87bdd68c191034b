-- The first schema. Hot and cold are apart: runs that are not over live in live_runs, small and unpartitioned; the
-- transaction that ends a run moves its row to run_history, append-only and partitioned by week.

CREATE TYPE run_state AS ENUM (
    'Blocked', 'Queued', 'Claimed', 'Running', 'Stopping', 'Retrying',
    'Succeeded', 'Dead', 'Cancelled', 'Unknown');
CREATE TYPE run_kind AS ENUM ('Slot', 'Manual', 'Backfill');
CREATE TYPE skip_reason AS ENUM ('CatchUp', 'Deadline', 'Forbid', 'QueueFull', 'Suspended', 'Paused', 'Edited');

-- One row. The epoch rises when the database may have gone back in time (promotion, restore), so that what grew from it
-- (fencing tokens, resource versions) never repeats.
CREATE TABLE installation (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch           int NOT NULL DEFAULT 1,
    timeline        text NOT NULL,
    last_change     bigint NOT NULL DEFAULT 0,
    zone_version    text COLLATE "C",            -- of the zone data under which the next slots were computed last
    clock_step      interval,                    -- by how much the database's clock jumped; NULL while it is trusted
    clock_noticed_at timestamptz,                -- by the clock after the jump
    cursor_key      bytea NOT NULL               -- with which the cursors of lists are signed
                    DEFAULT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    served_since    timestamptz NOT NULL DEFAULT '-infinity'  -- the last time that workers had nobody to report to ended then
);
INSERT INTO installation (timeline) VALUES (substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8));

CREATE SEQUENCE claim_count AS bigint;

-- k8s/<namespace> or rest/<tenant>. jobs_made only grows: it widens the owner over more shards.
CREATE TABLE owners (
    owner           text COLLATE "C" PRIMARY KEY CHECK (owner ~ '^(k8s|rest)/.+$'),
    jobs_made       bigint NOT NULL DEFAULT 0
);

CREATE TABLE replicas (
    replica         text COLLATE "C" PRIMARY KEY,
    role            text NOT NULL CHECK (role IN ('operator', 'api')),
    started_at      timestamptz NOT NULL,
    last_seen       timestamptz NOT NULL,
    zone_version    text COLLATE "C",            -- of its zone data
    release         text COLLATE "C"             -- of the program
) WITH (fillfactor = 50);

-- The generation rises at every take-over; a holder whose generation is old writes nothing. Shards 0 to 255 are those of
-- jobs with a pod for each run, and held by operators; 256 to 511 those of jobs with workers, and held by API processes.
CREATE TABLE shard_leases (
    shard           smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 511),
    holder          text COLLATE "C",
    generation      bigint NOT NULL DEFAULT 0,
    expires_at      timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO shard_leases (shard) SELECT generate_series(0, 511);

-- Work that one replica at a time does for the whole installation.
CREATE TABLE duty_leases (
    duty            text COLLATE "C" PRIMARY KEY,
    holder          text COLLATE "C",
    generation      bigint NOT NULL DEFAULT 0,
    expires_at      timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);
INSERT INTO duty_leases (duty) VALUES ('mirror'), ('prune');

-- Wide; kept while a live run refers to it. Spec and payload are read with every run, as the text they are: json, not jsonb.
CREATE TABLE job_specs (
    spec_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id          uuid NOT NULL,
    generation      bigint NOT NULL,
    spec            json NOT NULL,
    payload         json,
    template        jsonb,
    template_hash   bytea,
    class           text COLLATE "C",            -- the JobClass by which the template is made; NULL: it is the job's own
    class_hash      bytea,                       -- of that class as it was then; NULL: there was none
    followed        boolean NOT NULL DEFAULT true,  -- another run may wait for one under this spec to end; told by who stores it
    stored_at       timestamptz NOT NULL
);
CREATE INDEX job_specs_by_job ON job_specs (job_id);
CREATE INDEX job_specs_of_classes ON job_specs (spec_id) WHERE class IS NOT NULL;

-- One for each JobClass object: the pods that people may run who may not create any.
CREATE TABLE job_classes (
    name            text COLLATE "C" PRIMARY KEY,
    spec            json NOT NULL,
    hash            bytea NOT NULL               -- of the spec
);

-- Narrow: what firing needs. next_run_at is the next slot's instant plus the job's jitter. It is NULL where nothing is due
-- ever: suspended, paused, invalid, deleted, or past its last slot.
CREATE TABLE jobs (
    job_id          uuid PRIMARY KEY,
    owner           text COLLATE "C" NOT NULL,   -- of owners; no foreign key: whoever makes a job writes that row first
    name            text COLLATE "C" NOT NULL,
    shard           smallint NOT NULL CHECK (shard BETWEEN 0 AND 511),
    pool            text COLLATE "C",            -- whose workers take the runs; NULL: each attempt is a pod
    handler         text COLLATE "C",
    concurrency_group text COLLATE "C",
    declared        boolean NOT NULL DEFAULT true,  -- by an object of the cluster, which alone may change it; false: over REST
    generation      bigint NOT NULL,
    resource_version bigint NOT NULL,            -- of the object; over REST it counts the changes
    spec_id         bigint NOT NULL,             -- no foreign key: its check would need an index that every fire pays for
    labels          jsonb,
    created_at      timestamptz NOT NULL,
    last_slot_at    timestamptz NOT NULL,
    next_slot_at    timestamptz,
    next_run_at     timestamptz,
    suspended       boolean NOT NULL DEFAULT false,
    paused_at       timestamptz,                 -- after too many dead runs in a row
    parked          text,
    deleted_at      timestamptz,
    zone            text COLLATE "C",            -- of a schedule whose slots follow zone data
    ttl_seconds     int,                         -- of a one-shot: how long its object stays after its run
    expires_at      timestamptz,                 -- the end of that time, once its run is over
    CHECK (NOT declared OR starts_with(owner, 'k8s/')),
    CHECK ((pool IS NULL) = (handler IS NULL)),
    CHECK ((pool IS NULL) = (shard < 256)),
    CHECK ((next_run_at IS NULL) = (next_slot_at IS NULL)),
    CHECK (next_slot_at IS NULL OR next_slot_at > last_slot_at),
    CHECK (next_run_at IS NULL OR next_run_at >= next_slot_at),
    CHECK (next_run_at IS NULL
           OR NOT (suspended OR paused_at IS NOT NULL OR parked IS NOT NULL OR deleted_at IS NOT NULL))
) WITH (fillfactor = 80);
CREATE INDEX jobs_due ON jobs (shard, next_run_at) WHERE next_run_at IS NOT NULL;
CREATE INDEX jobs_by_name ON jobs (owner, name) WHERE deleted_at IS NULL;
CREATE INDEX jobs_gone_by_name ON jobs (owner, name) WHERE deleted_at IS NOT NULL;  -- apart: who makes and deletes many is not slow to list
CREATE INDEX jobs_paused ON jobs (shard) WHERE paused_at IS NOT NULL;
CREATE INDEX jobs_parked ON jobs (job_id) WHERE parked IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX jobs_by_zone ON jobs (zone, job_id) WHERE zone IS NOT NULL;
CREATE INDEX jobs_finished ON jobs (shard, expires_at) WHERE ttl_seconds IS NOT NULL AND next_run_at IS NULL;
CREATE INDEX jobs_deleted ON jobs (deleted_at) WHERE deleted_at IS NOT NULL;

-- What the object's status shows. dirty_at is set by whatever changes it and cleared by the status writer.
CREATE TABLE job_status (
    job_id          uuid PRIMARY KEY,            -- of jobs: made with its row, and removed with it
    shard           smallint NOT NULL CHECK (shard BETWEEN 0 AND 255),  -- operators write it, whoever runs the job
    last_scheduled_at timestamptz,               -- this and the next for jobs with an object to show it
    last_success_at timestamptz,
    consecutive_failures int NOT NULL DEFAULT 0,
    last_manual_success_at timestamptz,          -- what ends a pause
    conditions      jsonb NOT NULL DEFAULT '[]',
    failed_at       timestamptz,                 -- what events tell of, from here to told
    failed_run      uuid,                        -- of the first attempt that failed after a success
    failed_attempt  int,
    stuck_run       uuid,                        -- the last one whose pod was refused for now
    ill_runs        bigint NOT NULL DEFAULT 0,   -- that ended Dead or Unknown
    ill_run         uuid,                        -- the last one
    missed_slots    bigint NOT NULL DEFAULT 0,   -- too late to run, or passed over for newer ones
    missed_at       timestamptz,                 -- the last one
    told            jsonb NOT NULL DEFAULT '{}', -- how far events have told of it
    dirty_at        timestamptz,
    urgent          boolean NOT NULL DEFAULT false,
    written_at      timestamptz,
    written_digest  bytea                        -- of what the object shows: a patch that changes nothing is not sent
) WITH (fillfactor = 70);
CREATE INDEX job_status_dirty ON job_status (shard, dirty_at) WHERE dirty_at IS NOT NULL;
CREATE INDEX job_status_urgent ON job_status (shard, dirty_at) WHERE dirty_at IS NOT NULL AND urgent;

-- Past slots that somebody wants to run, made into runs a few at a time. The row stays as the record. Whoever changes it
-- holds the lock of the job's row.
CREATE TABLE backfills (
    backfill_id     uuid PRIMARY KEY,            -- also the key of its runs
    job_id          uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    job_name        text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,   -- of the object that asked for it
    shard           smallint NOT NULL,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL,
    newest_first    boolean NOT NULL,
    concurrency     int NOT NULL CHECK (concurrency > 0),
    look_at         timestamptz NOT NULL,        -- when it is looked at next
    reached_at      timestamptz,                 -- the slot that was decided last
    open_at         timestamptz[] NOT NULL DEFAULT '{}',  -- slots of its runs that were not over at the last look
    spec_id         bigint NOT NULL,             -- under which the slots were counted
    slots           bigint NOT NULL,             -- of the range
    made            bigint NOT NULL DEFAULT 0,   -- runs
    passed          bigint NOT NULL DEFAULT 0,   -- slots that had a run already
    succeeded       bigint NOT NULL DEFAULT 0,
    failed          bigint NOT NULL DEFAULT 0,   -- runs that ended in any other state
    created_at      timestamptz NOT NULL,
    complete        boolean NOT NULL DEFAULT false,  -- every slot is made or passed
    stop_reason     text,                        -- no further slot is made into a run
    ended_at        timestamptz,                 -- complete or stopped, and every run is over
    CHECK (from_at <= to_at),
    UNIQUE (owner, name)
) WITH (fillfactor = 70);
CREATE INDEX backfills_open ON backfills (look_at, shard) WHERE ended_at IS NULL;
CREATE INDEX backfills_ended ON backfills (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE live_runs (
    run_id          uuid PRIMARY KEY,
    job_id          uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    job_name        text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    labels          jsonb,
    kind            run_kind NOT NULL,
    key             text COLLATE "C" NOT NULL DEFAULT '',
    scheduled_at    timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    shard           smallint NOT NULL,
    pool            text COLLATE "C",            -- as the job had it when the run was made
    handler         text COLLATE "C",
    concurrency_group text COLLATE "C",
    spec_id         bigint NOT NULL,
    payload         json,                        -- a manual run's own, else NULL and the spec's holds
    state           run_state NOT NULL,
    reason          text,
    message         text,
    -- its job lets it go; a column of its own, so that an index need not follow every reason
    waits_for_group boolean NOT NULL GENERATED ALWAYS AS (state = 'Blocked' AND coalesce(reason, '') = 'GroupLimit') STORED,
    serial          boolean NOT NULL DEFAULT false,  -- waits until no earlier run of the job is live
    priority        smallint NOT NULL DEFAULT 0,
    queue_at        timestamptz NOT NULL,        -- ready since, less ten seconds a step of priority
    ready_at        timestamptz NOT NULL,        -- Retrying: end of the back-off
    attempt         int NOT NULL DEFAULT 0,
    failures        int NOT NULL DEFAULT 0,
    disruptions     int NOT NULL DEFAULT 0,
    token           bigint,
    fencing         bigint,
    claimed_at      timestamptz,
    launched_at     timestamptz,                 -- the first attempt's pod was accepted: lateness is measured to here
    started_at      timestamptz,                 -- this attempt was seen to run
    pod_uid         uuid,
    node            text,
    worker          text COLLATE "C",            -- who has the attempt; NULL: a pod, or a message that nobody has started
    lease_until     timestamptz,                 -- of a worker's attempt; in no index, so that a heartbeat stays HOT
    deadline_at     timestamptz,                 -- of this attempt: pending while Claimed, attempt time-out while Running
    run_deadline_at timestamptz,
    pending_timeout int NOT NULL,                -- seconds, from the spec at fire
    attempt_timeout int,
    stop_reason     text,
    UNIQUE (job_id, scheduled_at, kind, key),
    CHECK (state NOT IN ('Succeeded', 'Dead', 'Cancelled', 'Unknown')),
    CHECK ((state IN ('Claimed', 'Running', 'Stopping')) = (token IS NOT NULL)),
    CHECK ((state = 'Stopping') = (stop_reason IS NOT NULL)),
    CHECK ((pool IS NULL) = (handler IS NULL)),
    CHECK (pool IS NULL OR (token IS NULL) = (lease_until IS NULL))
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_limit = 2000);
-- Owners take turns, in a queue and in that of a pool: the next one is a probe away, whatever waits of this one.
CREATE INDEX live_runs_queued ON live_runs (shard, owner, queue_at) WHERE state = 'Queued' AND pool IS NULL;
CREATE INDEX live_runs_pool_queued ON live_runs (pool, handler, owner, queue_at)
    WHERE state = 'Queued' AND pool IS NOT NULL;
CREATE INDEX live_runs_retrying ON live_runs (shard, ready_at) WHERE state = 'Retrying';
CREATE INDEX live_runs_blocked ON live_runs (shard, scheduled_at) WHERE state = 'Blocked';
-- What waits for its group is not gone through job by job: the best are taken from the group's own queue.
CREATE INDEX live_runs_blocked_jobs ON live_runs (job_id) WHERE state = 'Blocked' AND NOT waits_for_group;
CREATE INDEX live_runs_group_queue ON live_runs (concurrency_group, queue_at) WHERE waits_for_group;
CREATE INDEX live_runs_open ON live_runs (shard)
    WHERE state IN ('Claimed', 'Running', 'Stopping') AND pool IS NULL;
CREATE INDEX live_runs_pool_open ON live_runs (pool, worker)
    WHERE state IN ('Claimed', 'Running', 'Stopping') AND pool IS NOT NULL;
CREATE INDEX live_runs_open_of_owner ON live_runs (owner) WHERE state IN ('Claimed', 'Running', 'Stopping');
CREATE INDEX live_runs_of_group ON live_runs (concurrency_group)
    WHERE concurrency_group IS NOT NULL AND state IN ('Queued', 'Claimed', 'Running', 'Stopping');
CREATE INDEX live_runs_stopping ON live_runs (shard) WHERE state = 'Stopping';
CREATE INDEX live_runs_by_owner ON live_runs (owner, run_id);
CREATE INDEX live_runs_by_name ON live_runs (owner, name) WHERE kind <> 'Slot';
-- What is Stopping already has nothing to be told by a deadline.
CREATE INDEX live_runs_attempt_deadline ON live_runs (shard, deadline_at)
    WHERE deadline_at IS NOT NULL AND state IN ('Claimed', 'Running') AND pool IS NULL;
CREATE INDEX live_runs_run_deadline ON live_runs (shard, run_deadline_at)
    WHERE run_deadline_at IS NOT NULL AND state <> 'Stopping';

CREATE TABLE run_history (
    run_id          uuid NOT NULL,
    job_id          uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    job_name        text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    labels          jsonb,
    kind            run_kind NOT NULL,
    key             text COLLATE "C" NOT NULL,
    scheduled_at    timestamptz NOT NULL,
    created_at      timestamptz NOT NULL,
    shard           smallint NOT NULL,
    spec_id         bigint NOT NULL,
    payload         json,
    state           run_state NOT NULL CHECK (state IN ('Succeeded', 'Dead', 'Cancelled', 'Unknown')),
    reason          text,
    message         text,
    attempt         int NOT NULL,
    failures        int NOT NULL,
    disruptions     int NOT NULL,
    claimed_at      timestamptz,
    launched_at     timestamptz,
    started_at      timestamptz,
    finished_at     timestamptz NOT NULL,
    pod_uid         uuid,
    node            text,
    worker          text COLLATE "C",
    token           bigint,                      -- of a worker's last attempt: a report that comes twice is known by it
    result          jsonb,                       -- what the handler returned
    PRIMARY KEY (run_id, scheduled_at)
) PARTITION BY RANGE (scheduled_at);
-- That a job has one run of an instant, a kind and a key is seen to while it is live; here its id, made of them, will do.
CREATE INDEX run_history_by_job ON run_history (job_id, scheduled_at);
-- A run id begins with its scheduled instant, so it orders lists by time and is their keyset cursor.
CREATE INDEX run_history_by_owner ON run_history (owner, run_id);
CREATE INDEX run_history_unwell ON run_history (state, run_id) WHERE state <> 'Succeeded';
CREATE INDEX run_history_unwell_of_owner ON run_history (owner, state, run_id) WHERE state <> 'Succeeded';
-- The name of a slot's run says its job and instant, and is found by those.
CREATE INDEX run_history_by_name ON run_history (owner, name) WHERE kind <> 'Slot';

-- Attempts that did not end well: the common run costs no row here.
CREATE TABLE attempts (
    run_id          uuid NOT NULL,
    scheduled_at    timestamptz NOT NULL,
    attempt         int NOT NULL,
    claimed_at      timestamptz NOT NULL,
    started_at      timestamptz,
    ended_at        timestamptz NOT NULL,
    outcome         text NOT NULL CHECK (outcome IN ('Failed', 'Disrupted', 'TimedOut', 'Stopped', 'Refused', 'Unseen')),
    reason          text NOT NULL,
    exit_code       int,
    message         text,
    pod_name        text,                        -- NULL: a worker's
    node            text,
    worker          text COLLATE "C",
    token           bigint,                      -- of a worker's attempt: a report that comes twice is known by it
    log_tail        text,
    PRIMARY KEY (run_id, attempt, scheduled_at)
) PARTITION BY RANGE (scheduled_at);

-- Slots that did not run, and why; one row may count many.
CREATE SEQUENCE skip_count AS bigint;
CREATE TABLE skips (
    skip_id         bigint NOT NULL DEFAULT nextval('skip_count'),  -- partitioned tables have no identity before 17
    job_id          uuid NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    job_name        text COLLATE "C" NOT NULL,
    labels          jsonb,
    first_at        timestamptz NOT NULL,
    last_at         timestamptz NOT NULL,
    count           bigint NOT NULL CHECK (count > 0),
    reason          skip_reason NOT NULL,
    recorded_at     timestamptz NOT NULL,
    PRIMARY KEY (skip_id, recorded_at),
    CHECK (first_at <= last_at)
) PARTITION BY RANGE (recorded_at);
CREATE INDEX skips_by_owner ON skips (owner, last_at DESC, skip_id DESC);
CREATE INDEX skips_by_time ON skips (last_at DESC, skip_id DESC);
CREATE INDEX skips_by_job ON skips (job_id, last_at DESC);

-- One row a hot transaction; the sequencer numbers the rows in an order in which no later commit can slip in between.
-- Run i of the row has the number first_number + i.
CREATE TABLE run_changes (
    change_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid             xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at      timestamptz NOT NULL DEFAULT now(),
    first_number    bigint,
    runs            uuid[] NOT NULL,
    states          run_state[] NOT NULL,
    CHECK (cardinality(runs) = cardinality(states) AND cardinality(runs) > 0)
) WITH (fillfactor = 70);
CREATE INDEX run_changes_unnumbered ON run_changes (change_id) WHERE first_number IS NULL;
CREATE UNIQUE INDEX run_changes_numbered ON run_changes (first_number) WHERE first_number IS NOT NULL;

-- Whose workers take runs, and how. One for each WorkerPool object; a tenant's exists once a worker claims from it.
CREATE TABLE pools (
    pool            text COLLATE "C" PRIMARY KEY CHECK (pool ~ '^(k8s|rest)/[^/]+/[^/]+$'),
    owner           text COLLATE "C" NOT NULL,
    name            text COLLATE "C" NOT NULL,
    object_uid      uuid,
    resource_version bigint,
    service_account text COLLATE "C",            -- whose tokens may act for the pool; NULL: static tokens alone
    allowed_owners  text[] COLLATE "C" NOT NULL DEFAULT '{}',  -- beside its own; '*': everybody
    handlers        text[] COLLATE "C" NOT NULL DEFAULT '{}',  -- that its workers have; none listed: nobody knows which
    dispatch        text NOT NULL DEFAULT 'Poll' CHECK (dispatch IN ('Poll', 'Kafka')),
    lease_seconds   int NOT NULL DEFAULT 90 CHECK (lease_seconds > 0),
    heartbeat_seconds int NOT NULL DEFAULT 30 CHECK (heartbeat_seconds > 0 AND heartbeat_seconds < lease_seconds),
    rescue_from     timestamptz NOT NULL DEFAULT '-infinity',  -- leases that lapsed are left alone until then
    kafka_error     text,                        -- why runs are polled for although the pool says Kafka; NULL: they are not
    deleted_at      timestamptz
);

-- Static credentials; only the hash of one is kept.
CREATE TABLE tokens (
    token_id        uuid PRIMARY KEY,
    hash            bytea NOT NULL UNIQUE,
    owner           text COLLATE "C" NOT NULL,
    role            text NOT NULL CHECK (role IN ('viewer', 'editor', 'worker')),
    pool            text COLLATE "C",            -- a worker's
    name            text NOT NULL,
    created_at      timestamptz NOT NULL,
    expires_at      timestamptz,
    revoked_at      timestamptz,
    CHECK ((role = 'worker') = (pool IS NOT NULL))
);
CREATE INDEX tokens_of_owner ON tokens (owner, created_at);

-- One row for each key with a limit: whoever is about to count against limits locks the rows first, in their order.
CREATE TABLE limit_keys (
    key             text COLLATE "C" PRIMARY KEY CHECK (key ~ '^(owner|pool|group):.+$')
);

CREATE TABLE idempotency_keys (
    scope           text COLLATE "C" NOT NULL,   -- the job's id for a manual run
    key             text COLLATE "C" NOT NULL,
    run_id          uuid NOT NULL,
    stored_at       timestamptz NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (stored_at);

-- Answers to REST calls that came with an Idempotency-Key, so that the same call gets the same answer for a day.
CREATE TABLE kept_answers (
    owner           text COLLATE "C" NOT NULL,
    key             text COLLATE "C" NOT NULL,
    digest          bytea NOT NULL,              -- of method, path and body
    status          smallint NOT NULL,
    location        text,
    body            text NOT NULL,
    stored_at       timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX kept_answers_by_age ON kept_answers (stored_at);

CREATE TABLE audit (
    audit_id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at              timestamptz NOT NULL,
    owner           text COLLATE "C" NOT NULL,
    actor           text NOT NULL,
    action          text NOT NULL,
    job_id          uuid,
    run_id          uuid,
    detail          jsonb
);
CREATE INDEX audit_by_owner ON audit (owner, at, audit_id);
CREATE INDEX audit_of_job ON audit (job_id, at, audit_id) WHERE job_id IS NOT NULL;

-- Both halves, for readers that want one list.
CREATE VIEW runs AS
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, spec_id, state,
           reason, message, attempt, failures, disruptions, claimed_at, launched_at, started_at,
           NULL::timestamptz AS finished_at, pod_uid, node, worker
    FROM live_runs
    UNION ALL
    SELECT run_id, job_id, owner, job_name, name, labels, kind, key, scheduled_at, created_at, shard, spec_id, state,
           reason, message, attempt, failures, disruptions, claimed_at, launched_at, started_at,
           finished_at, pod_uid, node, worker
    FROM run_history;
