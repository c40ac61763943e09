-- The first row of each of these lines is free now. In a statement of its own, after those before it have gone.
UPDATE {schema}.outbox AS o SET free_at = o.due_at
FROM (
    SELECT first.id
    FROM unnest($1::text[], $2::uuid[]) AS g (sink, task_id)
    CROSS JOIN LATERAL (
        SELECT o.id, o.sink, o.task_id, o.free_at FROM {schema}.outbox AS o
        WHERE (o.sink, o.task_id, o.id) >= (g.sink, g.task_id, 0) AND o.state = 'pending' AND o.effect = 'route_event'
        ORDER BY o.sink, o.task_id, o.id LIMIT 1
    ) AS first
    WHERE first.sink = g.sink AND first.task_id = g.task_id AND first.free_at IS NULL
) AS next
WHERE o.id = next.id AND o.state = 'pending' AND o.free_at IS NULL
