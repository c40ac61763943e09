-- Limits (contract section 9): what is said of a queue, or under the name '*' of the whole store. How they are kept:
-- turn.py. Nothing here is written for a task without a key in a queue without limits.

ALTER TABLE {schema}.queues
    ADD COLUMN limited boolean NOT NULL DEFAULT false,
    ADD COLUMN max_running integer,
    ADD COLUMN rate_count integer,
    ADD COLUMN rate_micros bigint,
    ADD COLUMN burst integer NOT NULL DEFAULT 1,
    ADD COLUMN max_running_per_key integer,
    ADD COLUMN rate_tat bigint NOT NULL DEFAULT 0,  -- microseconds since 1970: when the bucket is full again
    ADD COLUMN changed_at timestamptz;              -- NULL: whatever runs is marked

-- Claimed under a limit since it was submitted or requeued. Means nothing of a task that has ended.
ALTER TABLE {schema}.tasks ADD COLUMN begun boolean NOT NULL DEFAULT false;

CREATE INDEX tasks_begun ON {schema}.tasks (queue, concurrency_key, lease_expires_at)
    WHERE begun AND status IN ('queued', 'running');
CREATE INDEX tasks_line ON {schema}.tasks (queue, concurrency_key, run_at, seq)
    WHERE status = 'queued' AND concurrency_key IS NOT NULL;
