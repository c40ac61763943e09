-- JSON is text, kept as it was given. `seq` is the order of submission. Texts sort by code point on every server.
--
-- Every change of a task writes into every index that its new version belongs to. So there are few, most of them hold
-- only tasks of one status, and what is asked seldom has none.

CREATE TABLE {schema}.migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE SEQUENCE {schema}.task_seq;

CREATE TABLE {schema}.tasks (
    id uuid PRIMARY KEY,
    seq bigint NOT NULL DEFAULT nextval('{schema}.task_seq'),
    run_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    claimed_at timestamptz,
    finished_at timestamptz,
    lease_expires_at timestamptz,
    lease_micros bigint NOT NULL DEFAULT 0,
    token uuid,
    settled_token uuid,
    cancel_requested_at timestamptz,
    last_error_at timestamptz,
    timeout double precision,
    lease double precision,
    attempt integer NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    priority smallint NOT NULL,
    status text COLLATE "C" NOT NULL
        CHECK (status IN ('waiting', 'queued', 'running', 'completed', 'failed', 'canceled')),
    name text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    claimed_by text COLLATE "C",
    claim_id text COLLATE "C",
    settled_as text COLLATE "C",
    settled_status text COLLATE "C",
    canceled_because text COLLATE "C",
    idempotency_key text COLLATE "C",
    concurrency_key text COLLATE "C",
    run_id text COLLATE "C",
    on_parent_failure text COLLATE "C" NOT NULL DEFAULT 'cancel',
    backoff text COLLATE "C" NOT NULL,
    parents text COLLATE "C",           -- NULL: none
    meta text COLLATE "C",
    payload text COLLATE "C" NOT NULL,
    result text COLLATE "C",
    last_error text COLLATE "C"         -- without its instants
);

CREATE INDEX tasks_ready ON {schema}.tasks (queue, priority DESC, run_at, seq) WHERE status = 'queued';
CREATE INDEX tasks_leased ON {schema}.tasks (lease_expires_at) WHERE status = 'running';
CREATE INDEX tasks_waiting ON {schema}.tasks (id) WHERE status = 'waiting';
CREATE INDEX tasks_completed ON {schema}.tasks (finished_at) WHERE status = 'completed';
CREATE INDEX tasks_failed ON {schema}.tasks (finished_at) WHERE status = 'failed';
CREATE INDEX tasks_canceled ON {schema}.tasks (finished_at) WHERE status = 'canceled';
CREATE UNIQUE INDEX tasks_keyed ON {schema}.tasks (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_run ON {schema}.tasks (run_id, id) WHERE run_id IS NOT NULL;
CREATE INDEX tasks_live_run ON {schema}.tasks (run_id)
    WHERE run_id IS NOT NULL AND status IN ('waiting', 'queued', 'running');

-- What each claim was granted, for one that is sent again after a lost reply. Of two that are sent at once the second
-- waits here for the first (see claim.sql).
CREATE TABLE {schema}.claims (
    claim_id text COLLATE "C" PRIMARY KEY,
    at timestamptz NOT NULL,
    tasks uuid[] NOT NULL
);

ALTER TABLE {schema}.claims ALTER COLUMN tasks SET STORAGE EXTERNAL;  -- random bytes: there is nothing to compress
CREATE INDEX claims_at ON {schema}.claims (at);

-- Tasks that became claimable with a `run_at` that was over already: whoever keeps a front has to go back (fronts.py).
CREATE TABLE {schema}.late (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    queue text COLLATE "C" NOT NULL,
    priority smallint NOT NULL,
    run_at timestamptz NOT NULL
);

-- An event without data says only what its task's record says (see rows.py). A tombstone, `task.deleted`, outlives its
-- task and so repeats its run_id.
CREATE TABLE {schema}.events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id uuid NOT NULL,
    at timestamptz NOT NULL,
    attempt integer,
    kind text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL,
    run_id text COLLATE "C",
    data text COLLATE "C"
);

CREATE INDEX events_task ON {schema}.events (task_id, id);
CREATE INDEX events_buried ON {schema}.events (at, id) WHERE kind = 'task.deleted';

-- Only what people have said of a queue. That a queue exists is known from its counts.
CREATE TABLE {schema}.queues (
    name text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false
);

-- What every change adds or takes away: the sum over a queue's rows is its count. Rows are only added, so that no two
-- transactions wait for each other here; fold.sql puts many into one now and then.
CREATE TABLE {schema}.counts (
    queue text COLLATE "C" NOT NULL,
    waiting bigint NOT NULL DEFAULT 0,
    queued bigint NOT NULL DEFAULT 0,
    running bigint NOT NULL DEFAULT 0,
    completed bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    canceled bigint NOT NULL DEFAULT 0
);

CREATE TABLE {schema}.workers (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    nonce bigint,                       -- the advisory lock that shows that the worker lives; NULL: nothing shows it
    host text COLLATE "C" NOT NULL,
    pid bigint NOT NULL,
    queues text COLLATE "C",
    concurrency integer NOT NULL,
    version text COLLATE "C" NOT NULL,
    names text COLLATE "C" NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL
);
