-- What completions write that other tasks read (docs/adr/0015-outputs.md).
--
-- Locks are taken in one order: tasks that end, datasets by name, follow-ups, tasks that wait.

CREATE TABLE {schema}.datasets (
    name text COLLATE "C" PRIMARY KEY,
    uuid uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL,
    last bigint NOT NULL DEFAULT 0,     -- 0: somebody was about to write it
    base bigint NOT NULL DEFAULT 0,     -- of the last version; likewise the next
    rows bigint NOT NULL DEFAULT 0
);

CREATE TABLE {schema}.dataset_versions (
    dataset text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    base bigint NOT NULL,
    rows bigint NOT NULL,
    added bigint NOT NULL,
    task_id uuid NOT NULL,
    created_at timestamptz NOT NULL,
    latest boolean NOT NULL DEFAULT true,
    mode text COLLATE "C" NOT NULL CHECK (mode IN ('append', 'replace')),
    PRIMARY KEY (dataset, version)
);

CREATE INDEX dataset_versions_task ON {schema}.dataset_versions (task_id);
CREATE INDEX dataset_versions_base ON {schema}.dataset_versions (dataset, base);
CREATE INDEX dataset_versions_old ON {schema}.dataset_versions (created_at) WHERE NOT latest;

-- A version is the rows of its base that came with it or before it. They are never changed.
CREATE TABLE {schema}.dataset_rows (
    dataset text COLLATE "C" NOT NULL,
    base bigint NOT NULL,
    version bigint NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    PRIMARY KEY (dataset, base, key)
);

-- Bases without versions, whose rows are yet to be deleted.
CREATE TABLE {schema}.loose_bases (
    dataset text COLLATE "C" NOT NULL,
    base bigint NOT NULL,
    PRIMARY KEY (dataset, base)
);

-- What tasks read; they go with their task. An empty version: what a parent writes. By the foreign key a submit and a
-- prune of the same version wait for each other. A pin of a task that has ended keeps nothing.
CREATE TABLE {schema}.pins (
    task_id uuid NOT NULL,
    dataset text COLLATE "C" NOT NULL,
    version bigint,
    PRIMARY KEY (task_id, dataset),
    FOREIGN KEY (dataset, version) REFERENCES {schema}.dataset_versions ON DELETE CASCADE
);

CREATE INDEX pins_version ON {schema}.pins (dataset, version);

ALTER TABLE {schema}.tasks ADD COLUMN inputs text COLLATE "C";  -- NULL: none

-- Writers of one dataset take turns from here on.
CREATE FUNCTION {schema}.lock_datasets(names text[], moment timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET enable_seqscan = off
AS $$
BEGIN
    INSERT INTO {schema}.datasets (name, created_at)
    SELECT DISTINCT g.name COLLATE "C", moment FROM unnest(names) AS g (name) ORDER BY 1
    ON CONFLICT (name) DO NOTHING;
    PERFORM FROM {schema}.datasets AS d WHERE d.name = ANY (names) ORDER BY d.name FOR UPDATE;
END
$$;

-- One more version of a dataset that is locked.
CREATE FUNCTION {schema}.write_output(
    given_dataset text, given_mode text, given_keys text[], given_values text[], writer uuid, moment timestamptz
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET enable_seqscan = off
AS $$
DECLARE
    known {schema}.datasets;
    fresh bigint;
BEGIN
    SELECT d.* INTO known FROM {schema}.datasets AS d WHERE d.name = given_dataset;
    IF given_mode = 'replace' OR known.last = 0 THEN
        known.base := known.last + 1;
        known.rows := 0;
    END IF;
    INSERT INTO {schema}.dataset_rows (dataset, base, version, key, value)
    SELECT given_dataset, known.base, known.last + 1, g.key, g.value
    FROM unnest(given_keys, given_values) WITH ORDINALITY AS g (key, value, n) ORDER BY g.n
    ON CONFLICT (dataset, base, key) DO NOTHING;
    GET DIAGNOSTICS fresh = ROW_COUNT;
    UPDATE {schema}.dataset_versions AS v SET latest = false WHERE v.dataset = given_dataset AND v.version = known.last;
    INSERT INTO {schema}.dataset_versions (dataset, version, base, rows, added, task_id, created_at, mode)
    VALUES (
        given_dataset, known.last + 1, known.base, known.rows + fresh, fresh, writer, moment, given_mode
    );
    UPDATE {schema}.datasets AS d
    SET last = known.last + 1, base = known.base, rows = known.rows + fresh,
        created_at = CASE WHEN known.last = 0 THEN moment ELSE d.created_at END
    WHERE d.name = given_dataset;
END
$$;

-- As before, with inputs and pins.
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
            dependents integer, bucket_size integer, meta text, inputs text, pins json, payload text
        )
    ),
    moment AS MATERIALIZED (SELECT coalesce(given_now, clock_timestamp()) AS now),
    added AS (
        INSERT INTO {schema}.tasks (
            seq, id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
            concurrency_key, run_id, parents, on_parent_failure, fail_fast, pending, dependents, delay_micros, meta,
            inputs, payload, created_at
        )
        SELECT
            g.seq, g.id, g.name, g.queue, g.priority, g.status,
            coalesce(g.run_at, moment.now + g.delay_micros * interval '1 microsecond'), g.max_attempts, g.backoff,
            g.timeout, g.lease, g.idempotency_key, g.concurrency_key, g.run_id,
            coalesce(json_array_length(g.parents), 0), g.on_parent_failure, g.fail_fast, coalesce(g.pending, 0),
            coalesce(g.dependents, 0),
            CASE WHEN g.status = 'waiting' AND g.run_at IS NULL THEN g.delay_micros ELSE 0 END,
            g.meta, g.inputs, g.payload, moment.now
        FROM given AS g CROSS JOIN moment
        ORDER BY g.idempotency_key, g.seq
        RETURNING seq, id, queue, priority, status, run_at, created_at
    ),
    pinned AS (
        INSERT INTO {schema}.pins (task_id, dataset, version)
        SELECT g.id, p.dataset, p.version
        FROM given AS g CROSS JOIN LATERAL json_to_recordset(g.pins) AS p (dataset text, version bigint)
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

-- The first of these tasks' pins to a version that is not there; NULL: there is none.
CREATE FUNCTION {schema}.lacking_pin(given_tasks json) RETURNS json
LANGUAGE sql VOLATILE
SET search_path = pg_catalog
AS $$
    SELECT json_build_object('dataset', p.dataset, 'version', p.version)
    FROM json_array_elements(given_tasks) WITH ORDINALITY AS g (task, n)
    CROSS JOIN LATERAL json_to_recordset(g.task -> 'pins') AS p (dataset text, version bigint)
    WHERE p.version IS NOT NULL AND NOT EXISTS (
        SELECT FROM {schema}.dataset_versions AS v WHERE v.dataset = p.dataset AND v.version = p.version
    )
    ORDER BY g.n, p.dataset COLLATE "C" LIMIT 1
$$;

-- As before, with inputs; or a pin to a version that is not there, and nothing added.
CREATE OR REPLACE FUNCTION {schema}.add_or_known(given_tasks json, given_now timestamptz) RETURNS json
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET enable_seqscan = off
AS $$
DECLARE
    known json;
    lacks boolean;
BEGIN
    FOR look IN 1..10 LOOP
        BEGIN
            PERFORM {schema}.add_tasks(given_tasks, given_now);
            RETURN NULL;
        EXCEPTION
            WHEN unique_violation THEN lacks := false;
            WHEN foreign_key_violation THEN lacks := true;
        END;
        IF lacks THEN
            known := {schema}.lacking_pin(given_tasks);
            IF known IS NOT NULL THEN
                RETURN known;
            END IF;
            EXIT WHEN current_setting('transaction_isolation') <> 'read committed';
            CONTINUE;
        END IF;
        SELECT json_agg(json_build_object(
            'id', t.id, 'name', t.name, 'queue', t.queue, 'payload', t.payload, 'priority', t.priority,
            'max_attempts', t.max_attempts, 'backoff', t.backoff, 'timeout', t.timeout, 'lease', t.lease,
            'idempotency_key', t.idempotency_key, 'concurrency_key', t.concurrency_key, 'run_id', t.run_id,
            'parents', CASE WHEN t.parents > 0 THEN ARRAY(
                SELECT e.parent FROM {schema}.edges AS e WHERE e.child = t.id ORDER BY e.position
            ) END,
            'on_parent_failure', t.on_parent_failure, 'fail_fast', t.fail_fast, 'meta', t.meta,
            'inputs', t.inputs
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
    RAISE EXCEPTION 'another transaction submitted a task with the same id or key, or pruned one of the inputs, meanwhile'
        USING ERRCODE = 'serialization_failure', HINT = 'Roll back and run the transaction again.';
END
$$;

-- The answer to a caller: add_or_known() has added everything, or found something in the way.
CREATE FUNCTION {schema}.said(known json) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
    SELECT json_build_object(
        'verdict',
        CASE WHEN known IS NULL THEN 'done' WHEN json_typeof(known) = 'object' THEN 'lacking' ELSE 'known' END,
        'known', known
    )::text
$$;

-- As before, and says what is lacking.
CREATE OR REPLACE FUNCTION {schema}.submit(given_tasks text, given_xid text, given_identity text, given_now text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET lock_timeout = '5s'
SET extra_float_digits = 1
AS $$
DECLARE
    refused text := {schema}.stranger(given_xid, given_identity);
    known json;
BEGIN
    IF refused IS NOT NULL THEN
        RETURN refused;
    END IF;
    BEGIN
        known := {schema}.add_or_known(given_tasks::json, given_now::timestamptz);
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
        RETURN '{"verdict": "rival"}';
    END;
    RETURN {schema}.said(known);
END
$$;

-- As before, with outputs.
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
    output json;
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
    IF json_array_length(ending -> 'outputs') > 0 THEN
        PERFORM {schema}.lock_datasets(
            ARRAY(SELECT o.one ->> 'dataset' FROM json_array_elements(ending -> 'outputs') AS o (one)), moment
        );
    END IF;
    IF json_array_length(ending -> 'follow_ups') > 0 THEN
        known := {schema}.add_or_known(ending -> 'follow_ups', moment);
        IF known IS NOT NULL THEN
            RETURN {schema}.said(known);
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
    FOR output IN SELECT json_array_elements(ending -> 'outputs') LOOP
        PERFORM {schema}.write_output(
            output ->> 'dataset', output ->> 'mode', ARRAY(SELECT json_array_elements_text(output -> 'keys')),
            ARRAY(SELECT json_array_elements_text(output -> 'values')), task.id, moment
        );
    END LOOP;
    IF task.dependents > 0 THEN
        INSERT INTO {schema}.advances (task_id, kind, actor, at)
        VALUES (task.id, 'dependents', task.claimed_by, moment)
        ON CONFLICT (task_id, kind)
        DO UPDATE SET actor = excluded.actor, at = excluded.at, after_id = DEFAULT, after_n = DEFAULT;
    END IF;
    RETURN '{"verdict": "done"}';
END
$$;
