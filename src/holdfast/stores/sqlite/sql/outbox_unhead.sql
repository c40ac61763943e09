-- Whichever row of these lines was the first is no longer.
UPDATE holdfast_outbox SET head = 0 WHERE id IN (
    SELECT o.id FROM json_each(:lines) AS given
    CROSS JOIN holdfast_outbox AS o
        ON o.head AND o.sink = given.value ->> 0 AND o.task_id = given.value ->> 1 AND o.effect = 'route_event'
)
