WITH added AS (
    INSERT INTO {schema}.tasks (
        id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
        concurrency_key, run_id, fail_fast, on_parent_failure, meta, payload, created_at
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
