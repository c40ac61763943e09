-- Workflows (docs/adr/0012-workflows.md): who waits for whom, what of that is left to do, and the steps within a task.
--
-- `edges` and `advances` have one writer at a time: whoever holds the lock on the task from which an edge leaves, or
-- whose end it is. `buckets` are locked in the order of their key, after the tasks that end and before those that wait.

-- Numbers instead of the list that nothing could fill before: how many edges lead to a task and leave it.
ALTER TABLE {schema}.tasks DROP COLUMN parents;
ALTER TABLE {schema}.tasks
    ADD COLUMN parents integer NOT NULL DEFAULT 0,
    ADD COLUMN dependents integer NOT NULL DEFAULT 0,
    ADD COLUMN pending integer NOT NULL DEFAULT 0,      -- parents, or buckets of them, that it still waits for
    ADD COLUMN delay_micros bigint NOT NULL DEFAULT 0,  -- of a waiting task, from the moment when it is ready
    ADD COLUMN fail_fast text COLLATE "C";

CREATE INDEX tasks_because ON {schema}.tasks (canceled_because, seq) WHERE canceled_because IS NOT NULL;
CREATE INDEX tasks_broken ON {schema}.tasks (run_id, id) WHERE run_id IS NOT NULL AND status IN ('failed', 'canceled');
DROP INDEX {schema}.tasks_live_run;
CREATE INDEX tasks_live_run ON {schema}.tasks (run_id, id)
    WHERE run_id IS NOT NULL AND status IN ('waiting', 'queued', 'running');

-- They go with their child: as long as that exists it knows whom it waited for. Each is changed once, in its place.
CREATE TABLE {schema}.edges (
    parent uuid NOT NULL,
    child uuid NOT NULL,
    position integer NOT NULL,
    bucket integer,                         -- NULL: counted by the child's own `pending`
    anyway boolean NOT NULL,                -- the child runs also after a failure
    counted boolean NOT NULL DEFAULT false, -- an end of the parent has been taken off
    PRIMARY KEY (parent, child, position)
) WITH (fillfactor = 60);

CREATE INDEX edges_child ON {schema}.edges (child, position);

-- How many parents of each bucket have not been counted yet; the last one takes one off the child's `pending`.
CREATE TABLE {schema}.buckets (
    child uuid NOT NULL,
    bucket integer NOT NULL,
    open integer NOT NULL,
    PRIMARY KEY (child, bucket)
) WITH (fillfactor = 50);

-- What a task's end or return still means for others, because it was too much for one transaction (advance.py).
CREATE TABLE {schema}.advances (
    task_id uuid NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('dependents', 'fail_fast', 'rearm')),
    at timestamptz NOT NULL,
    after_id uuid NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',  -- how far it has come
    after_n bigint NOT NULL DEFAULT -1,
    actor text COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, kind)
);

CREATE INDEX advances_at ON {schema}.advances (at);

CREATE TABLE {schema}.steps (
    task_id uuid NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL,
    name text COLLATE "C" NOT NULL,
    result text COLLATE "C" NOT NULL,
    PRIMARY KEY (task_id, name)
);

-- As before, with edges and buckets.
CREATE OR REPLACE FUNCTION {schema}.add_tasks(given_tasks json, given_now timestamptz) RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog
AS $$
    WITH given AS MATERIALIZED (
        SELECT nextval('{schema}.task_seq') AS seq, g.*
        FROM json_to_recordset(given_tasks) AS g (
            id uuid, name text, queue text, priority smallint, status text, run_at timestamptz, delay_micros bigint,
            max_attempts integer, backoff text, timeout double precision, lease double precision, idempotency_key text,
            concurrency_key text, run_id text, parents json, on_parent_failure text, fail_fast text, pending integer,
            dependents integer, bucket_size integer, meta text, payload text
        )
    ),
    moment AS MATERIALIZED (SELECT coalesce(given_now, clock_timestamp()) AS now),
    added AS (
        INSERT INTO {schema}.tasks (
            seq, id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
            concurrency_key, run_id, parents, on_parent_failure, fail_fast, pending, dependents, delay_micros, meta,
            payload, created_at
        )
        SELECT
            g.seq, g.id, g.name, g.queue, g.priority, g.status,
            coalesce(g.run_at, moment.now + g.delay_micros * interval '1 microsecond'), g.max_attempts, g.backoff,
            g.timeout, g.lease, g.idempotency_key, g.concurrency_key, g.run_id,
            coalesce(json_array_length(g.parents), 0), g.on_parent_failure, g.fail_fast, coalesce(g.pending, 0),
            coalesce(g.dependents, 0),
            CASE WHEN g.status = 'waiting' AND g.run_at IS NULL THEN g.delay_micros ELSE 0 END,
            g.meta, g.payload, moment.now
        FROM given AS g CROSS JOIN moment
        ORDER BY g.idempotency_key, g.seq
        RETURNING seq, id, queue, priority, status, run_at, created_at
    ),
    edge AS MATERIALIZED (
        SELECT
            p.parent::uuid AS parent, g.id AS child, (p.n - 1)::integer AS position,
            ((p.n - 1) / nullif(g.bucket_size, 0))::integer AS bucket, g.on_parent_failure = 'run' AS anyway
        FROM given AS g CROSS JOIN LATERAL json_array_elements_text(g.parents) WITH ORDINALITY AS p (parent, n)
    ),
    joined AS (
        INSERT INTO {schema}.edges (parent, child, position, bucket, anyway)
        SELECT parent, child, position, bucket, anyway FROM edge
    ),
    dealt AS (
        INSERT INTO {schema}.buckets (child, bucket, open)
        SELECT child, bucket, count(*) FROM edge WHERE bucket IS NOT NULL GROUP BY child, bucket
    ),
    noted AS (
        INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
        SELECT id, created_at, 'task.enqueued', 'client', 0 FROM added ORDER BY seq
    ),
    late AS (
        INSERT INTO {schema}.late (queue, priority, run_at)
        SELECT queue, priority, min(run_at) FROM added
        WHERE status = 'queued' AND run_at < created_at GROUP BY queue, priority
    )
    INSERT INTO {schema}.counts (queue, waiting, queued)
    SELECT queue, count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'queued')
    FROM added GROUP BY queue
$$;

-- As before, with the parents from the edges.
CREATE OR REPLACE FUNCTION {schema}.add_or_known(given_tasks json, given_now timestamptz) RETURNS json
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET enable_seqscan = off
AS $$
DECLARE
    known json;
BEGIN
    FOR look IN 1..10 LOOP
        BEGIN
            PERFORM {schema}.add_tasks(given_tasks, given_now);
            RETURN NULL;
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
        SELECT json_agg(json_build_object(
            'id', t.id, 'name', t.name, 'queue', t.queue, 'payload', t.payload, 'priority', t.priority,
            'max_attempts', t.max_attempts, 'backoff', t.backoff, 'timeout', t.timeout, 'lease', t.lease,
            'idempotency_key', t.idempotency_key, 'concurrency_key', t.concurrency_key, 'run_id', t.run_id,
            'parents', CASE WHEN t.parents > 0 THEN ARRAY(
                SELECT e.parent FROM {schema}.edges AS e WHERE e.child = t.id ORDER BY e.position
            ) END,
            'on_parent_failure', t.on_parent_failure, 'fail_fast', t.fail_fast, 'meta', t.meta
        ))
        INTO known
        FROM (
            SELECT g.id FROM json_to_recordset(given_tasks) AS g (id uuid)
            UNION
            SELECT k.id FROM json_to_recordset(given_tasks) AS g (idempotency_key text)
            JOIN {schema}.tasks AS k ON k.idempotency_key = g.idempotency_key AND k.idempotency_key IS NOT NULL
        ) AS g
        JOIN {schema}.tasks AS t ON t.id = g.id;
        IF known IS NOT NULL THEN
            RETURN known;
        END IF;
        -- Deleted just now: try again. Or committed after this transaction's snapshot, which will never show it.
        EXIT WHEN current_setting('transaction_isolation') <> 'read committed';
    END LOOP;
    RAISE EXCEPTION 'another transaction submitted a task with the same id or idempotency key meanwhile'
        USING ERRCODE = 'serialization_failure', HINT = 'Roll back and run the transaction again.';
END
$$;

-- As before, and where others wait for the task that is left to do: a worker goes on with it once this is committed.
CREATE OR REPLACE FUNCTION {schema}.complete(given_end text, given_xid text, given_identity text, given_now text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET lock_timeout = '5s'
SET enable_seqscan = off
SET extra_float_digits = 1
AS $$
DECLARE
    refused text := {schema}.stranger(given_xid, given_identity);
    ending json := given_end;
    task {schema}.tasks;
    moment timestamptz;
    known json;
BEGIN
    IF refused IS NOT NULL THEN
        RETURN refused;
    END IF;
    SELECT t.* INTO task FROM {schema}.tasks AS t WHERE t.id = (ending ->> 'id')::uuid FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'gone' USING ERRCODE = 'HF404';
    END IF;
    moment := coalesce(given_now::timestamptz, clock_timestamp());
    IF task.attempt = (ending ->> 'attempt')::bigint AND task.settled_token::text = ending ->> 'token'
        AND task.settled_as = 'completed'
    THEN
        RETURN '{"verdict": "done"}';
    END IF;
    IF task.status <> 'running' OR task.attempt <> (ending ->> 'attempt')::bigint
        OR task.token::text <> ending ->> 'token' OR task.lease_expires_at <= moment
    THEN
        RAISE EXCEPTION '% %', task.status, task.attempt USING ERRCODE = 'HF409';
    END IF;
    IF json_array_length(ending -> 'follow_ups') > 0 THEN
        known := {schema}.add_or_known(ending -> 'follow_ups', moment);
        IF known IS NOT NULL THEN
            RETURN json_build_object('verdict', 'known', 'known', known);
        END IF;
    END IF;
    UPDATE {schema}.tasks AS t
    SET status = 'completed', result = ending ->> 'result', finished_at = moment,
        settled_token = t.token, settled_as = 'completed', settled_status = 'completed',
        token = NULL, claim_id = NULL, claimed_by = NULL, lease_expires_at = NULL, canceled_because = NULL
    WHERE t.id = task.id;
    INSERT INTO {schema}.events (task_id, at, kind, actor, data)
    SELECT task.id, moment, e.event ->> 'kind', task.claimed_by, e.event ->> 'data'
    FROM json_array_elements(ending -> 'emitted') WITH ORDINALITY AS e (event, n) ORDER BY e.n;
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    VALUES (task.id, moment, 'task.completed', task.claimed_by, task.attempt);
    INSERT INTO {schema}.counts (queue, running, completed) VALUES (task.queue, -1, 1);
    IF task.dependents > 0 THEN
        INSERT INTO {schema}.advances (task_id, kind, actor, at)
        VALUES (task.id, 'dependents', task.claimed_by, moment)
        ON CONFLICT (task_id, kind)
        DO UPDATE SET actor = excluded.actor, at = excluded.at, after_id = DEFAULT, after_n = DEFAULT;
    END IF;
    RETURN '{"verdict": "done"}';
END
$$;
