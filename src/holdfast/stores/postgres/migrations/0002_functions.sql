-- What others call inside transactions of their own: a submit, a completion, and enqueue() for people who write SQL.
--
-- `submit` and `complete` are called by joined.py. They take and return JSON texts, so that every driver can call them.
-- JSON that is data (payload, meta, backoff, result) travels as a string inside and is never looked into here. What a
-- caller's session is set to (search_path, float digits, …) changes nothing. A submit that is refused is an answer, not
-- an error: the caller's transaction can go on. A completion whose lease is lost is an error on purpose: the transaction
-- then cannot commit any more.

-- Which database this is, however it is reached: the same through a pooler or another host name, another one for a copy.
CREATE FUNCTION {schema}.identity() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog
AS $$
DECLARE
    number text := 'unknown';
BEGIN
    BEGIN
        SELECT system_identifier INTO number FROM pg_control_system();
    EXCEPTION WHEN insufficient_privilege THEN
        NULL;  -- a server that keeps it to itself: the database's own number has to do
    END;
    RETURN number || '/' || (SELECT oid FROM pg_database WHERE datname = current_database());
END
$$;

-- Is this the very transaction in which the caller asked for its number, and the right database? NULL, or the refusal.
CREATE FUNCTION {schema}.stranger(given_xid text, given_identity text) RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog
AS $$
    SELECT CASE
        WHEN given_identity <> {schema}.identity() THEN '{"verdict": "elsewhere"}'
        WHEN given_xid <> pg_current_xact_id()::text THEN '{"verdict": "no transaction"}'
    END
$$;

-- New tasks with their events and counts, as in sql/submit.sql, and for the same reason the clock is read in here: who
-- writes tasks has to hold the table's lock before it gets its time (fronts.py).
CREATE FUNCTION {schema}.add_tasks(given_tasks json, given_now timestamptz) RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog
AS $$
    WITH given AS MATERIALIZED (
        SELECT nextval('{schema}.task_seq') AS seq, g.*
        FROM json_to_recordset(given_tasks) AS g (
            id uuid, name text, queue text, priority smallint, status text, run_at timestamptz, delay_micros bigint,
            max_attempts integer, backoff text, timeout double precision, lease double precision, idempotency_key text,
            concurrency_key text, run_id text, parents text, on_parent_failure text, meta text, payload text
        )
    ),
    moment AS MATERIALIZED (SELECT coalesce(given_now, clock_timestamp()) AS now),
    added AS (
        INSERT INTO {schema}.tasks (
            seq, id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
            concurrency_key, run_id, parents, on_parent_failure, meta, payload, created_at
        )
        SELECT
            g.seq, g.id, g.name, g.queue, g.priority, g.status,
            coalesce(g.run_at, moment.now + g.delay_micros * interval '1 microsecond'), g.max_attempts, g.backoff,
            g.timeout, g.lease, g.idempotency_key, g.concurrency_key, g.run_id, g.parents, g.on_parent_failure, g.meta,
            g.payload, moment.now
        FROM given AS g CROSS JOIN moment
        ORDER BY g.idempotency_key, g.seq
        RETURNING seq, id, queue, priority, status, run_at, created_at
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

-- All of these tasks, or none and those that are in their way, as they were submitted. What follows from them is decided
-- in policy/repetition.py. Ids and keys are nearly always new, so nothing is read before something is found taken: two
-- serializable transactions with different keys then do not depend on one another.
CREATE FUNCTION {schema}.add_or_known(given_tasks json, given_now timestamptz) RETURNS json
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
            'parents', t.parents, 'meta', t.meta
        ))
        INTO known
        FROM (
            SELECT k.* FROM json_to_recordset(given_tasks) AS g (id uuid) JOIN {schema}.tasks AS k ON k.id = g.id
            UNION
            SELECT k.* FROM json_to_recordset(given_tasks) AS g (idempotency_key text)
            JOIN {schema}.tasks AS k ON k.idempotency_key = g.idempotency_key AND k.idempotency_key IS NOT NULL
        ) AS t;
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

CREATE FUNCTION {schema}.submit(given_tasks text, given_xid text, given_identity text, given_now text) RETURNS text
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
    RETURN json_build_object('verdict', CASE WHEN known IS NULL THEN 'done' ELSE 'known' END, 'known', known);
END
$$;

-- The good end of an attempt, as in policy/verdict.py, with its events and follow-ups. The row is locked before the
-- clock is read, and stays locked until the caller's transaction ends:
--   1. The lease holds, and the task is completed here. 2. The lease's time runs out. 3. A reaper finds the row, as it
--   was before, and passes by: it is locked. 4. The caller commits: completed. Or it rolls back or dies: the row is free,
--   the lease is over, and the next reaper records the attempt as lost.
CREATE FUNCTION {schema}.complete(given_end text, given_xid text, given_identity text, given_now text) RETURNS text
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
        token = NULL, claim_id = NULL, claimed_by = NULL, lease_expires_at = NULL
    WHERE t.id = task.id;
    INSERT INTO {schema}.events (task_id, at, kind, actor, data)
    SELECT task.id, moment, e.event ->> 'kind', task.claimed_by, e.event ->> 'data'
    FROM json_array_elements(ending -> 'emitted') WITH ORDINALITY AS e (event, n) ORDER BY e.n;
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    VALUES (task.id, moment, 'task.completed', task.claimed_by, task.attempt);
    INSERT INTO {schema}.counts (queue, running, completed) VALUES (task.queue, -1, 1);
    RETURN '{"verdict": "done"}';
END
$$;

-- A new UUIDv7, as ids.py makes them: milliseconds, their fraction in 12 bits, and chance.
CREATE FUNCTION {schema}.new_id() RETURNS uuid
LANGUAGE sql VOLATILE
SET search_path = pg_catalog
AS $$
    SELECT encode(
        overlay(
            overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(micros / 1000) FROM 3) FROM 1 FOR 6)
            PLACING int2send((28672 + micros % 1000 * 4096 / 1000)::smallint) FROM 7 FOR 2
        ),
        'hex'
    )::uuid
    FROM (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS micros) AS clock
$$;

-- The rules of policy/admission.py for what is written in SQL. Each returns what it was given or raises.

CREATE FUNCTION {schema}.checked_name(what text, given text) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
SET standard_conforming_strings = on
AS $$
BEGIN
    IF given = '' OR octet_length(given) > 512 OR given COLLATE "C" ~ '[\u0001-\u001F\u007F-\u009F]' THEN
        RAISE EXCEPTION '% is %; give a text of 1 to 512 bytes without control characters',
            what, quote_literal(left(given, 40)) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN given;
END
$$;

CREATE FUNCTION {schema}.checked_number(what text, given double precision, lowest double precision, highest double precision)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
AS $$
BEGIN
    IF NOT given BETWEEN lowest AND highest THEN
        RAISE EXCEPTION '% is %; give a number from % to %', what, given, lowest, highest
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN given;
END
$$;

-- JSON that every worker can read: bounded in bytes, depth and digits, without halves of characters. The text is kept.
CREATE FUNCTION {schema}.checked_json(what text, given json, most_bytes integer) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
SET standard_conforming_strings = on
AS $$
DECLARE
    whole text := given::text;
    escapes text := replace(whole, '\\', '');
    bare text := regexp_replace(escapes, '"([^"\\]|\\.)*"', '"', 'g');
    brackets text := regexp_replace(bare, '[^][{}]', '', 'g');
    high CONSTANT text := '\\u[dD][89abAB][0-9a-fA-F]{2}';
    low CONSTANT text := '\\u[dD][c-fC-F][0-9a-fA-F]{2}';
    fault text;
BEGIN
    IF octet_length(whole) > most_bytes THEN
        RAISE EXCEPTION '% takes % bytes, more than %; store it elsewhere and send its address',
            what, octet_length(whole), most_bytes USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF escapes ~ (high || '(?!' || low || ')') OR regexp_replace(escapes, high || low, '', 'g') ~ low THEN
        fault := 'holds a lone surrogate, which is not text';
    ELSIF bare ~ '[0-9]{154}[0-9]{155}' THEN
        fault := 'holds a number of more than 308 digits; send it as a text';
    ELSIF length(brackets) > 400 AND {schema}.depth_of(brackets) > 200 THEN
        fault := 'is nested too deeply; at most 200 levels are kept';
    ELSIF bare ~ '[eE]' THEN
        BEGIN
            PERFORM number[1]::double precision
            FROM regexp_matches(bare, '-?[0-9]+(?:\.[0-9]+)?[eE][-+]?[0-9]+', 'g') AS number;
        EXCEPTION WHEN numeric_value_out_of_range THEN
            fault := 'holds a number that does not fit a double; send it as a text';
        END;
    END IF;
    IF fault IS NOT NULL THEN
        RAISE EXCEPTION '% %', what, fault USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN whole;
END
$$;

CREATE FUNCTION {schema}.depth_of(brackets text) RETURNS bigint
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog
AS $$
    SELECT max(level) FROM (
        SELECT sum(CASE WHEN bracket IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY n) AS level
        FROM string_to_table(brackets, NULL) WITH ORDINALITY AS b (bracket, n)
    ) AS levels
$$;

-- A policy of model/backoff.py, in its own words.
CREATE FUNCTION {schema}.checked_backoff(given json) RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
AS $$
DECLARE
    spans CONSTANT json := '{"exponential": ["base", "cap"], "fixed": ["delay"], "linear": ["step", "cap"]}';
    needed CONSTANT json := '{"exponential": [], "fixed": ["delay"], "linear": ["step"]}';
    longest CONSTANT double precision := 366 * 24 * 3600;
    kind text;
    field text;
BEGIN
    IF json_typeof(given) = 'object' THEN
        kind := given ->> 'type';
    END IF;
    IF kind IN ('exponential', 'fixed', 'linear') THEN
        FOR field IN SELECT json_array_elements_text(needed -> kind) LOOP
            IF given -> field IS NULL THEN
                RAISE EXCEPTION 'backoff % lacks %', kind, field USING ERRCODE = 'invalid_parameter_value';
            END IF;
        END LOOP;
        FOR field IN SELECT json_array_elements_text(spans -> kind) LOOP
            PERFORM {schema}.checked_number('backoff ' || field, {schema}.number_of(given -> field), 0, longest);
        END LOOP;
    ELSIF kind = 'delays' AND json_typeof(given -> 'delays') = 'array' AND json_array_length(given -> 'delays') > 0 THEN
        PERFORM {schema}.checked_number('a delay of backoff', {schema}.number_of(delay), 0, longest)
        FROM json_array_elements(given -> 'delays') AS delay;
    ELSE
        RAISE EXCEPTION 'backoff is %; give {"type": "exponential" (base, cap), "fixed" (delay), "linear" (step, cap) or '
            '"delays" (a list)}', left(given::text, 100) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}.checked_number('backoff jitter', {schema}.number_of(given -> 'jitter'), 0, 1);
    RETURN {schema}.checked_json('backoff', given, 16384);
END
$$;

CREATE FUNCTION {schema}.number_of(given json) RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
AS $$
BEGIN
    IF json_typeof(given) <> 'number' THEN
        RAISE EXCEPTION '% is not a number', left(given::text, 40) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN (given #>> '{}')::double precision;
END
$$;

-- The payload as a call: one that has only "args" or only "kwargs" gets the other. Whoever looks into a json for a key
-- has its escapes turned into characters, and NUL is none to PostgreSQL: so the look is at a copy without it.
CREATE FUNCTION {schema}.whole_call(given json) RETURNS json
LANGUAGE plpgsql IMMUTABLE STRICT
SET search_path = pg_catalog
SET standard_conforming_strings = on
AS $$
DECLARE
    copy json;
BEGIN
    IF json_typeof(given) <> 'object' THEN
        RETURN given;
    END IF;
    copy := replace(replace(given::text, '\\', '/'), '\u0000', '0');
    IF copy -> 'args' IS NOT NULL AND copy -> 'kwargs' IS NULL THEN
        RETURN regexp_replace(given::text, '\}\s*$', ', "kwargs": {}}');
    ELSIF copy -> 'kwargs' IS NOT NULL AND copy -> 'args' IS NULL THEN
        RETURN regexp_replace(given::text, '\}\s*$', ', "args": []}');
    END IF;
    RETURN given;
END
$$;

-- For plain SQL and triggers: the new task's id, or that of the task which has the idempotency key already. Spans are
-- seconds.
CREATE FUNCTION {schema}.enqueue(
    name text,
    payload json DEFAULT '{"args": [], "kwargs": {}}',
    queue text DEFAULT 'default',
    priority integer DEFAULT 0,
    run_at timestamptz DEFAULT NULL,
    delay double precision DEFAULT 0,
    max_attempts integer DEFAULT 5,
    timeout double precision DEFAULT NULL,
    lease double precision DEFAULT NULL,
    backoff json DEFAULT NULL,
    idempotency_key text DEFAULT NULL,
    concurrency_key text DEFAULT NULL,
    run_id text DEFAULT NULL,
    meta json DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog
SET extra_float_digits = 1
AS $$
DECLARE
    longest CONSTANT double precision := 10 * 366 * 24 * 3600::double precision;
    id uuid := {schema}.new_id();
    answer json;
BEGIN
    IF name IS NULL OR payload IS NULL OR queue IS NULL OR priority IS NULL OR delay IS NULL OR max_attempts IS NULL THEN
        RAISE EXCEPTION 'name, payload, queue, priority, delay and max_attempts must not be null'
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF run_at IS NOT NULL AND (delay <> 0 OR NOT isfinite(run_at)
        OR run_at NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00')
    THEN
        RAISE EXCEPTION 'run_at is % and delay is %; give one of them, a finite instant or seconds', run_at, delay
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF meta IS NOT NULL AND json_typeof(meta) <> 'object' THEN
        RAISE EXCEPTION 'meta is a JSON %; give an object', json_typeof(meta) USING ERRCODE = 'invalid_parameter_value';
    END IF;
    answer := {schema}.submit(
        json_build_array(json_build_object(
            'id', id,
            'name', {schema}.checked_name('the task name', name),
            'queue', {schema}.checked_name('the queue', queue),
            'priority', {schema}.checked_number('priority', priority, -32768, 32767),
            'status', 'queued',
            'run_at', run_at,
            'delay_micros', round({schema}.checked_number('delay', delay, 0, longest) * 1000000)::bigint,
            'max_attempts', {schema}.checked_number('max_attempts', max_attempts, 0, 1000000),
            'backoff', coalesce(
                {schema}.checked_backoff(backoff), '{"type":"exponential","base":1.5,"cap":60.0,"jitter":0.3}'
            ),
            'timeout', {schema}.checked_number('timeout', timeout, 0.001, longest),
            'lease', {schema}.checked_number('lease', lease, 0.001, longest),
            'idempotency_key', {schema}.checked_name('the idempotency key', idempotency_key),
            'concurrency_key', {schema}.checked_name('the concurrency key', concurrency_key),
            'run_id', {schema}.checked_name('the run id', run_id),
            'on_parent_failure', 'cancel',
            'meta', {schema}.checked_json('meta', meta, 16384),
            'payload', {schema}.checked_json('the payload', {schema}.whole_call(payload), 1048576)
        ))::text,
        pg_current_xact_id()::text, {schema}.identity(), NULL
    );
    IF answer ->> 'verdict' = 'rival' THEN
        RAISE EXCEPTION 'another transaction holds the idempotency key % and does not end', quote_literal(idempotency_key)
            USING ERRCODE = 'lock_not_available', HINT = 'Roll back and run the transaction again.';
    ELSIF answer ->> 'verdict' = 'done' THEN
        RETURN id;
    ELSIF answer #>> '{known,0,name}' <> name THEN
        RAISE EXCEPTION 'idempotency key % belongs to task % named %, not %', quote_literal(idempotency_key),
            answer #>> '{known,0,id}', quote_literal(answer #>> '{known,0,name}'), quote_literal(name)
            USING ERRCODE = 'unique_violation', HINT = 'Use another key for another task.';
    END IF;
    RETURN (answer #>> '{known,0,id}')::uuid;
END
$$;
