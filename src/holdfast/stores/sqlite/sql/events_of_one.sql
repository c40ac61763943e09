-- Of the task that exists under this id, and the tombstones of those that existed before.
SELECT json_group_array(json_array(
    e.id, e.at, :task_id, coalesce(t.run_id, e.run_id), e.kind, e.actor, e.attempt, e.data,
    t.name, t.queue, t.parents, t.max_attempts
))
FROM (
    SELECT * FROM (
        SELECT * FROM holdfast_events
        WHERE task IS NOT NULL AND task = (SELECT seq FROM holdfast_tasks WHERE id = :task_id) AND id > :after
        UNION ALL
        SELECT * FROM holdfast_events WHERE task_id IS NOT NULL AND task_id = :task_id AND id > :after
    )
    ORDER BY id LIMIT :limit
) AS e
LEFT JOIN holdfast_tasks AS t ON t.seq = e.task
