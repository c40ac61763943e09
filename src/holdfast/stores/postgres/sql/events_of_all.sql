-- In the order of ids, as far as nothing can come in between any more (see horizon.py).
SELECT
    e.id, e.at, e.task_id::text AS task_id, coalesce(t.run_id, e.run_id) AS run_id, e.kind, e.actor, e.attempt, e.data,
    t.name, t.queue, t.parents, t.max_attempts
FROM (
    SELECT * FROM {schema}.events
    WHERE id > $1::bigint AND id <= $3::bigint
    ORDER BY id LIMIT $2::bigint
) AS e
LEFT JOIN {schema}.tasks AS t ON t.id = e.task_id
ORDER BY e.id
