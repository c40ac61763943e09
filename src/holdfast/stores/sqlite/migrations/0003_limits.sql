-- What may run at once (docs/adr/0013-limits.md).

ALTER TABLE holdfast_queues ADD COLUMN limits TEXT;                            -- JSON; NULL: never set
ALTER TABLE holdfast_queues ADD COLUMN limited INTEGER NOT NULL DEFAULT 0;     -- one of them holds
ALTER TABLE holdfast_queues ADD COLUMN rate_tat INTEGER NOT NULL DEFAULT 0;    -- see policy/limits.py

CREATE INDEX holdfast_limited ON holdfast_queues (name) WHERE limited;

-- `begun`: claimed since it was submitted or requeued, and not ended. `placed`: runs in a place that a limit counts.
ALTER TABLE holdfast_tasks ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_tasks ADD COLUMN placed INTEGER NOT NULL DEFAULT 0;
ALTER TABLE holdfast_tasks ADD COLUMN keyed INTEGER GENERATED ALWAYS AS (concurrency_key IS NOT NULL) VIRTUAL;

UPDATE holdfast_tasks SET begun = 1 WHERE attempt > 0 AND status IN ('queued', 'running');

-- Tasks with a key stand in a line of their own: however many of them are held, they do not stand before the others.
DROP INDEX holdfast_ready;
CREATE INDEX holdfast_ready ON holdfast_tasks (queue, keyed, priority DESC, run_at, seq) WHERE status = 'queued';

CREATE INDEX holdfast_key_line ON holdfast_tasks (queue, concurrency_key, run_at, seq)
    WHERE status = 'queued' AND concurrency_key IS NOT NULL;
CREATE INDEX holdfast_begun ON holdfast_tasks (queue, concurrency_key, seq)
    WHERE begun AND concurrency_key IS NOT NULL;
CREATE INDEX holdfast_placed ON holdfast_tasks (queue, concurrency_key, lease_expires_at) WHERE placed;
