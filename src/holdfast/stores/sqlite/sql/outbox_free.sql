-- What may be taken for one sink, soonest first. The last column: it would wake nobody.
SELECT json_group_array(json_array(free_at, id, stale)) FROM (
    SELECT o.free_at, o.id, o.effect = 'enqueue_task' AND NOT EXISTS (
        SELECT 1 FROM holdfast_tasks AS t WHERE t.id = o.task_id AND t.status = 'queued'
    ) AS stale
    FROM holdfast_outbox AS o
    WHERE o.head AND o.sink = :sink AND o.free_at <= :now
    ORDER BY o.free_at, o.id LIMIT :limit
)
