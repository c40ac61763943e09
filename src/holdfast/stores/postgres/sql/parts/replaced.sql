coalesce((
        SELECT later.sink = o.sink AND later.task_id = o.task_id FROM {schema}.outbox AS later
        WHERE (later.sink, later.task_id, later.id) > (o.sink, o.task_id, o.id) AND later.state = 'pending'
        ORDER BY later.sink, later.task_id, later.id LIMIT 1
    ), false)