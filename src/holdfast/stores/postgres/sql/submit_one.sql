-- One new task, due now or after a delay, with its event and count: submit.sql without what many need. Where a channel is
-- given ($19), its commit also tells those who listen, if anybody holds the lock that says so ($21, $22); the answer is
-- whether anybody does.
WITH added AS (
    INSERT INTO {schema}.tasks (
        id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
        concurrency_key, run_id, parents, on_parent_failure, meta, payload, created_at
    )
    SELECT
        $2::uuid, $3::text, $4::text, $5::smallint, $6::text,
        moment.now + $7::bigint * interval '1 microsecond',
        $8::integer, $9::text, $10::double precision, $11::double precision, $12::text, $13::text, $14::text, $15::text,
        $16::text, $17::text, $18::text, moment.now
    FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now OFFSET 0) AS moment
    RETURNING id, queue, status, created_at
),
noted AS (
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    SELECT id, created_at, 'task.enqueued', 'client', 0 FROM added
),
counted AS (
    INSERT INTO {schema}.counts (queue, waiting, queued)
    SELECT queue, (status = 'waiting')::integer, (status = 'queued')::integer FROM added
)
SELECT CASE
    WHEN $19::text IS NULL THEN NULL
    WHEN NOT EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
          AND l.classid = ($21::bigint & 4294967295)::oid AND l.objid = ($22::bigint & 4294967295)::oid
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
    ) THEN false
    ELSE (SELECT true FROM pg_notify($19::text, $20::text))
END
