-- The best $8 due tasks of these shelves ($2 to $5, the highest priority first), of each shelf no more than $6. They
-- are locked, but where $7 says that keys are limited: most of those may be held by their key. Only queues without limits,
-- and those whose turn this is ($9).
--
-- Rows are pulled one by one: a priority is looked at only once those above it gave too little.
WITH shelf AS MATERIALIZED (
    SELECT g.*
    FROM unnest($2::text[], $3::smallint[], $4::timestamptz[], $5::bigint[], $6::bigint[], $7::boolean[])
        AS g (queue, priority, run_at, seq, most, keyed)
    LEFT JOIN {schema}.queues AS q ON q.name = g.queue
    WHERE q.paused IS NOT TRUE AND (q.limited IS NOT TRUE OR q.name = ANY ($9::text[]))
      AND NOT EXISTS (SELECT FROM {schema}.queues AS w WHERE w.name = '*' AND w.limited AND w.name <> ALL ($9::text[]))
),
level AS MATERIALIZED (SELECT DISTINCT shelf.priority FROM shelf ORDER BY shelf.priority DESC)
SELECT best.*
FROM level
CROSS JOIN LATERAL (
    SELECT shelf.queue, shelf.priority, one.*
    FROM shelf
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT t.run_at, t.seq, t.id::text AS id, t.concurrency_key FROM {schema}.tasks AS t
            WHERE NOT shelf.keyed AND t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
              AND (t.run_at, t.seq) >= (shelf.run_at, shelf.seq) AND t.run_at <= $1::timestamptz
            ORDER BY t.run_at, t.seq LIMIT shelf.most
            FOR UPDATE SKIP LOCKED
        ) AS free
        UNION ALL
        SELECT * FROM (
            SELECT t.run_at, t.seq, t.id::text AS id, t.concurrency_key FROM {schema}.tasks AS t
            WHERE shelf.keyed AND t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
              AND (t.run_at, t.seq) >= (shelf.run_at, shelf.seq) AND t.run_at <= $1::timestamptz
            ORDER BY t.run_at, t.seq LIMIT shelf.most
        ) AS keyed
    ) AS one
    WHERE shelf.priority = level.priority
    ORDER BY one.run_at, one.seq LIMIT $8::bigint
) AS best
LIMIT $8::bigint
