SELECT json_group_array(json_array(
    e.id, e.at, coalesce(t.id, e.task_id), coalesce(t.run_id, e.run_id), e.kind, e.actor, e.attempt, e.data,
    t.name, t.queue, t.parents, t.max_attempts
))
FROM (SELECT * FROM holdfast_events WHERE id > :after ORDER BY id LIMIT :limit) AS e
LEFT JOIN holdfast_tasks AS t ON t.seq = e.task
