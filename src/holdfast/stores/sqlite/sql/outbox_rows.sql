-- The columns of outbox.OutboxColumns, for these rows.
SELECT json_group_array(json_array(
    o.id, o.sink, o.effect, o.task_id, o.queue, o.state, o.created_at, o.due_at, o.tries, o.last_error,
    o.event, o.at, o.run_id, o.kind, o.actor, o.attempt, o.data, o.name, o.parents, o.max_attempts, o.told
))
FROM json_each(:rows) AS given CROSS JOIN holdfast_outbox AS o ON o.id = given.value
