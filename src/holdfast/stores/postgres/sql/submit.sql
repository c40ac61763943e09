-- New tasks with their events and counts. Numbered in the order given; inserted in the order of their idempotency
-- keys, so that two submitters of the same keys wait for one another and never in a circle.
WITH given AS MATERIALIZED (
    SELECT nextval('{schema}.task_seq') AS seq, g.*
    FROM unnest(
        $2::uuid[], $3::text[], $4::text[], $5::smallint[], $6::text[], $7::timestamptz[], $8::bigint[], $9::integer[],
        $10::text[], $11::double precision[], $12::double precision[], $13::text[], $14::text[], $15::text[],
        $16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::integer[], $22::integer[], $23::integer[]
    ) AS g (
        id, name, queue, priority, status, run_at, delay_micros, max_attempts, backoff, timeout, lease,
        idempotency_key, concurrency_key, run_id, fail_fast, on_parent_failure, meta, payload, inputs, parents,
        pending, dependents
    )
),
moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
added AS (
    INSERT INTO {schema}.tasks (
        seq, id, name, queue, priority, status, run_at, max_attempts, backoff, timeout, lease, idempotency_key,
        concurrency_key, run_id, fail_fast, on_parent_failure, meta, payload, inputs, parents, pending,
        dependents, delay_micros, created_at
    )
    SELECT
        g.seq, g.id, g.name, g.queue, g.priority, g.status,
        coalesce(g.run_at, moment.now + g.delay_micros * interval '1 microsecond'), g.max_attempts, g.backoff,
        g.timeout, g.lease, g.idempotency_key, g.concurrency_key, g.run_id, g.fail_fast,
        g.on_parent_failure, g.meta, g.payload, g.inputs, g.parents, g.pending, g.dependents,
        CASE WHEN g.status = 'waiting' AND g.run_at IS NULL THEN g.delay_micros ELSE 0 END, moment.now
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
),
counted AS (
    INSERT INTO {schema}.counts (queue, waiting, queued)
    SELECT queue, count(*) FILTER (WHERE status = 'waiting'), count(*) FILTER (WHERE status = 'queued')
    FROM added GROUP BY queue
)
SELECT count(*) FROM added
