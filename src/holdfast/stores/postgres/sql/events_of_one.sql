-- Of the task that exists under this id, and the tombstones of those that existed before. A task's events are written
-- under its row lock, so here the order of ids is the order of commits.
SELECT
    e.id, e.at, e.task_id::text AS task_id, coalesce(t.run_id, e.run_id) AS run_id, e.kind, e.actor, e.attempt, e.data,
    t.name, t.queue, t.parents, t.max_attempts
FROM (
    SELECT * FROM {schema}.events
    WHERE task_id = $3::uuid AND id > $1::bigint
    ORDER BY task_id, id LIMIT $2::bigint
) AS e
LEFT JOIN {schema}.tasks AS t ON t.id = e.task_id
ORDER BY e.id
