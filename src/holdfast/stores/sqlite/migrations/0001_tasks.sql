-- Instants are whole microseconds since 1970. JSON is text, kept as it was given. `seq` is the order of submission.
-- Texts longer than rows.APART_CHARS live in tables of their own, so that a claim or a settle never rewrites them.

CREATE TABLE holdfast_schema (
    version INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    applied_at INTEGER NOT NULL
);

CREATE TABLE holdfast_tasks (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    status TEXT NOT NULL,
    run_at INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    max_attempts INTEGER NOT NULL,
    policy TEXT NOT NULL,              -- [backoff, timeout, lease]
    claimed_by TEXT,
    token TEXT,
    claim_id TEXT,
    lease_length INTEGER NOT NULL DEFAULT 0,
    lease_expires_at INTEGER,
    settled_token TEXT,
    settled_as TEXT,
    settled_status TEXT,
    cancel_requested_at INTEGER,
    canceled_because TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    claimed_at INTEGER,
    finished_at INTEGER,
    idempotency_key TEXT,
    concurrency_key TEXT,
    run_id TEXT,
    parents TEXT,                      -- NULL: none
    on_parent_failure TEXT NOT NULL DEFAULT 'cancel',
    meta TEXT,
    payload TEXT,                      -- NULL: in holdfast_payloads
    result TEXT,                       -- NULL in a completed task: in holdfast_results
    last_error TEXT,                   -- without its instants
    last_error_at INTEGER NOT NULL DEFAULT 0
);

CREATE INDEX holdfast_ready ON holdfast_tasks (queue, priority DESC, run_at, seq) WHERE status = 'queued';
CREATE INDEX holdfast_leased ON holdfast_tasks (lease_expires_at) WHERE status = 'running';
CREATE INDEX holdfast_claimed ON holdfast_tasks (claim_id) WHERE status = 'running';
CREATE INDEX holdfast_ended ON holdfast_tasks (status, finished_at) WHERE finished_at IS NOT NULL;
CREATE UNIQUE INDEX holdfast_keyed ON holdfast_tasks (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX holdfast_run ON holdfast_tasks (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX holdfast_live_run ON holdfast_tasks (run_id)
    WHERE run_id IS NOT NULL AND status IN ('waiting', 'queued', 'running');

CREATE TABLE holdfast_payloads (
    task INTEGER PRIMARY KEY,
    payload TEXT NOT NULL
);

CREATE TABLE holdfast_results (
    task INTEGER PRIMARY KEY,
    result TEXT NOT NULL
);

-- `task` is the seq of a task that exists; a tombstone names its task by `task_id` and `run_id` instead.
-- An event without data says only what its task's record says (see rows.py). Ids are never used twice.
CREATE TABLE holdfast_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    task INTEGER,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    actor TEXT NOT NULL,
    attempt INTEGER,
    data TEXT,
    task_id TEXT,
    run_id TEXT
);

CREATE INDEX holdfast_events_task ON holdfast_events (task) WHERE task IS NOT NULL;
CREATE INDEX holdfast_tombstones ON holdfast_events (task_id) WHERE task_id IS NOT NULL;
CREATE INDEX holdfast_buried ON holdfast_events (at) WHERE task_id IS NOT NULL;

CREATE TABLE holdfast_queues (
    name TEXT PRIMARY KEY,
    paused INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Kept equal to the real counts by every transaction that moves a task.
CREATE TABLE holdfast_counts (
    queue TEXT NOT NULL,
    status TEXT NOT NULL,
    n INTEGER NOT NULL,
    PRIMARY KEY (queue, status)
) WITHOUT ROWID;

CREATE TABLE holdfast_workers (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    nonce TEXT NOT NULL,               -- names the file whose lock is the evidence that the worker lives
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    queues TEXT,
    concurrency INTEGER NOT NULL,
    version TEXT NOT NULL,
    names TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL
);

-- One row: when somebody last wrote about leases, within a second (see outage.py).
CREATE TABLE holdfast_pulse (
    last_write_at INTEGER NOT NULL
);

INSERT INTO holdfast_pulse (last_write_at) VALUES (0);
