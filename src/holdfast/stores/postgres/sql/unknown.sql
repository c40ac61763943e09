-- Queued tasks on shelves that are not known yet: between known priorities of one queue ($1 to $3), and between known
-- queues ($4, $5; $6: after the last one). At most one of each gap.
SELECT one.queue, one.priority
FROM unnest($1::text[], $2::integer[], $3::integer[]) AS g (queue, above, below)
CROSS JOIN LATERAL (
    SELECT t.queue, t.priority FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue = g.queue AND t.priority < g.above AND t.priority > g.below
    ORDER BY t.priority DESC LIMIT 1
) AS one
UNION ALL
SELECT one.queue, one.priority
FROM unnest($4::text[], $5::text[]) AS g (after, before)
CROSS JOIN LATERAL (
    SELECT t.queue, t.priority FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue > g.after AND t.queue < g.before ORDER BY t.queue LIMIT 1
) AS one
UNION ALL
SELECT one.queue, one.priority
FROM (
    SELECT t.queue, t.priority FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue > $6::text ORDER BY t.queue LIMIT 1
) AS one
