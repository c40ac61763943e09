-- Leases on these tasks ($11), as far as they are claimable and nobody else is at them. Those of the queues $12 are
-- marked as begun ('*': all). $7 to $10 are the shelves of which the next due task is wanted; else as in claim_line.sql.
WITH
moment AS MATERIALIZED (SELECT $1::timestamptz AS now),
known AS MATERIALIZED (SELECT true AS yes FROM {schema}.claims AS c WHERE c.claim_id = $2::text),
asked AS MATERIALIZED (
    SELECT g.queue, g.priority, g.run_at, g.seq
    FROM unnest($7::text[], $8::smallint[], $9::timestamptz[], $10::bigint[]) AS g (queue, priority, run_at, seq)
    LEFT JOIN {schema}.queues AS q ON q.name = g.queue
    WHERE q.paused IS NOT TRUE
),
held AS (SELECT ''::text AS queue WHERE false),
picked AS MATERIALIZED (
    SELECT t.ctid AS tid, t.queue = ANY ($12::text[]) OR '*' = ANY ($12::text[]) AS begun
    FROM unnest($11::text::uuid[]) WITH ORDINALITY AS g (id, n)
    JOIN {schema}.tasks AS t ON t.id = g.id
    WHERE NOT EXISTS (SELECT FROM known) AND t.status = 'queued' AND t.run_at <= (SELECT moment.now FROM moment)
    ORDER BY g.n
    FOR UPDATE OF t SKIP LOCKED
),
{include grant}