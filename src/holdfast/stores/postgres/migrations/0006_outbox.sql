-- Who is told of changes, and what they are yet to be told (docs/adr/0014-outbox.md).
--
-- Rows of the outbox are only ever inserted by those who change tasks, and changed by relays: neither waits for the
-- other, however long a caller's transaction is open.

CREATE TABLE {schema}.sinks (
    name text COLLATE "C" PRIMARY KEY,
    url text COLLATE "C" NOT NULL,
    effect text COLLATE "C" NOT NULL CHECK (effect IN ('enqueue_task', 'route_event')),
    kinds text[] COLLATE "C",           -- NULL: all
    queues text[] COLLATE "C",          -- NULL: all
    private boolean NOT NULL,
    secret text COLLATE "C",
    signed boolean NOT NULL GENERATED ALWAYS AS (secret IS NOT NULL) STORED,
    created_at timestamptz NOT NULL
);

-- `free_at` is from when on a relay may take a row: its time, or the end of a hold. It is empty where the row is dead, or
-- waits behind others of its line, which are the events of one task for one sink. Of every line the first row that is
-- pending is free at some time: who marks a row as one behind others holds the lock of one before it (take_outbox.sql),
-- and who takes one out of a line looks for the next after that (promote_outbox.sql).
--
-- Of a task that became claimable several times only the last wake-up counts; the others are dropped when they, or the last
-- one, are due.
CREATE TABLE {schema}.outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    due_at timestamptz NOT NULL,
    free_at timestamptz,
    event_id bigint,                    -- NULL: a wake-up
    tries integer NOT NULL DEFAULT 0,
    told integer NOT NULL DEFAULT 0,    -- how often a wake-up was delivered
    attempt integer,
    max_attempts integer,
    parents integer,
    sink text COLLATE "C" NOT NULL,
    effect text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'dead')),
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C",
    actor text COLLATE "C",
    run_id text COLLATE "C",
    name text COLLATE "C",
    hold text COLLATE "C",
    data text COLLATE "C",
    last_error text COLLATE "C"
);

CREATE INDEX outbox_free ON {schema}.outbox (sink, free_at, id) WHERE free_at IS NOT NULL;
CREATE INDEX outbox_line ON {schema}.outbox (sink, task_id, id) WHERE state = 'pending';
CREATE INDEX outbox_failed ON {schema}.outbox (sink, id)
    WHERE state = 'pending' AND (last_error IS NOT NULL OR hold IS NOT NULL);
CREATE INDEX outbox_dead ON {schema}.outbox (sink, task_id, id) WHERE state = 'dead';

-- Every transition writes its event in the same transaction, so whatever follows from it hangs here, and no verb can
-- forget it. A row repeats what its event says: events go with their task. That a task has become claimable is seen in its
-- record, which is as this transaction leaves it. Tasks are looked up one by one, whatever the session is set to,
-- and without the columns that a producer may not read.
CREATE FUNCTION {schema}.tell_sinks() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM {schema}.sinks) THEN
        RETURN NULL;
    END IF;
    INSERT INTO {schema}.outbox (
        task_id, created_at, due_at, free_at, event_id, attempt, max_attempts, parents, sink, effect, queue, kind, actor,
        run_id, name, data
    )
    SELECT
        e.task_id, e.at, e.at, e.at, e.id, e.attempt, t.max_attempts, t.parents, s.name, s.effect, t.queue, e.kind,
        e.actor, coalesce(t.run_id, e.run_id), t.name, e.data
    FROM {schema}.sinks AS s
    CROSS JOIN written AS e
    CROSS JOIN LATERAL (
        SELECT one.queue, one.run_id, one.name, one.parents, one.max_attempts
        FROM {schema}.tasks AS one WHERE one.id = e.task_id OFFSET 0
    ) AS t
    WHERE s.effect = 'route_event' AND (s.kinds IS NULL OR e.kind = ANY (s.kinds))
      AND (s.queues IS NULL OR t.queue = ANY (s.queues))
    ORDER BY e.id;
    INSERT INTO {schema}.outbox (task_id, created_at, due_at, free_at, sink, effect, queue)
    SELECT e.task_id, e.at, greatest(t.run_at, e.at), greatest(t.run_at, e.at), s.name, s.effect, t.queue
    FROM {schema}.sinks AS s
    CROSS JOIN (
        SELECT w.task_id, max(w.at) AS at FROM written AS w
        WHERE w.kind NOT IN ('task.running', 'task.completed', 'task.canceled') GROUP BY w.task_id
    ) AS e
    CROSS JOIN LATERAL (
        SELECT one.queue, one.status, one.run_at FROM {schema}.tasks AS one WHERE one.id = e.task_id OFFSET 0
    ) AS t
    WHERE s.effect = 'enqueue_task' AND t.status = 'queued' AND (s.queues IS NULL OR t.queue = ANY (s.queues));
    RETURN NULL;
END
$$;

CREATE TRIGGER tell_sinks AFTER INSERT ON {schema}.events
    REFERENCING NEW TABLE AS written FOR EACH STATEMENT EXECUTE FUNCTION {schema}.tell_sinks();
