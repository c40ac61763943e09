-- The first row of each of these lines that was put behind others is free now. In a statement of its own, after those
-- before it have gone. Also where it still sees some before it: of two that are in hand, one requeued and one that came
-- next meanwhile, each would wait for the other to look. One that is freed too early is put behind again.
UPDATE {schema}.outbox AS o SET free_at = o.due_at
FROM (
    SELECT behind.id
    FROM unnest($1::text[], $2::uuid[]) AS g (sink, task_id)
    CROSS JOIN LATERAL (
        SELECT o.id FROM {schema}.outbox AS o
        WHERE (o.sink, o.task_id, o.id) >= (g.sink, g.task_id, 0)
          AND (o.sink, o.task_id, o.id) <= (g.sink, g.task_id, 9223372036854775807)
          AND o.state = 'pending' AND o.effect = 'route_event' AND o.free_at IS NULL
        ORDER BY o.sink, o.task_id, o.id LIMIT 1
    ) AS behind
) AS next
WHERE o.id = next.id AND o.state = 'pending' AND o.free_at IS NULL
