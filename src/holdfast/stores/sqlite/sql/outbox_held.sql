-- What a delivery has to know of a row.
SELECT json_group_array(json_array(o.id, o.sink, o.task_id, o.effect, o.hold, o.due_at, o.tries, o.told, o.last_error))
FROM json_each(:rows) AS given CROSS JOIN holdfast_outbox AS o ON o.id = given.value
