-- Those of these rows that are dead.
SELECT json_group_array(json_array(o.id, o.sink, o.task_id, o.effect))
FROM json_each(:rows) AS given CROSS JOIN holdfast_outbox AS o ON o.id = given.value AND o.state = 'dead'
