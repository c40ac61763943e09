-- Who is told of changes, and what they are yet to be told (docs/adr/0014-outbox.md). The rows are written by triggers
-- that exist only while there are sinks (see sinks.py).

-- `kinds` and `queues` are JSON; NULL: all.
CREATE TABLE holdfast_sinks (
    name TEXT PRIMARY KEY,
    url TEXT NOT NULL,
    effect TEXT NOT NULL,
    kinds TEXT,
    queues TEXT,
    secret TEXT,
    private INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

-- From `event` to `max_attempts` a row repeats its event, and what the task's record adds to it (see rows.EventRow).
-- `head`: the first pending row of its sink, task and effect, which alone may be taken, from `free_at` on: when it is
-- due, or when the hold of the one who took it is over. The rows behind a head are in no index that a relay reads.
CREATE TABLE holdfast_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sink TEXT NOT NULL,
    effect TEXT NOT NULL,
    task_id TEXT NOT NULL,
    queue TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    free_at INTEGER NOT NULL,
    head INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    tries INTEGER NOT NULL DEFAULT 0,
    told INTEGER NOT NULL DEFAULT 0,   -- how often a wake-up was delivered
    hold TEXT,
    last_error TEXT,
    event INTEGER,
    at INTEGER,
    run_id TEXT,
    kind TEXT,
    actor TEXT,
    attempt INTEGER,
    data TEXT,
    name TEXT,
    parents TEXT,
    max_attempts INTEGER
);

CREATE INDEX holdfast_outbox_free ON holdfast_outbox (sink, free_at) WHERE head;
CREATE UNIQUE INDEX holdfast_outbox_head ON holdfast_outbox (sink, task_id, effect) WHERE head;
CREATE UNIQUE INDEX holdfast_outbox_wake ON holdfast_outbox (sink, task_id) WHERE effect = 'enqueue_task';
CREATE INDEX holdfast_outbox_line ON holdfast_outbox (sink, task_id)
    WHERE effect = 'route_event' AND state = 'pending';
CREATE INDEX holdfast_outbox_due ON holdfast_outbox (sink, due_at) WHERE state = 'pending';
CREATE INDEX holdfast_outbox_failed ON holdfast_outbox (sink, due_at)
    WHERE state = 'pending' AND last_error IS NOT NULL;
CREATE INDEX holdfast_outbox_dead ON holdfast_outbox (id) WHERE state = 'dead';

-- A remote worker works through a dispatcher: no file shows that it lives, its `nonce` is empty.
ALTER TABLE holdfast_workers ADD COLUMN remote INTEGER NOT NULL DEFAULT 0;

-- Who may call a dispatcher. `digest` is of the token's secret, which is kept nowhere.
CREATE TABLE holdfast_tokens (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
);
