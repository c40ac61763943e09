-- The first pending row of each of these lines (sink, task) may be taken.
UPDATE holdfast_outbox SET head = 1 WHERE id IN (
    SELECT (
        SELECT min(o.id) FROM holdfast_outbox AS o
        WHERE o.effect = 'route_event' AND o.state = 'pending' AND o.sink = given.value ->> 0
          AND o.task_id = given.value ->> 1
    )
    FROM json_each(:lines) AS given
)
