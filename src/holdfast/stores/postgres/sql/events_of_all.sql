-- In the order of ids, which is not the order of commits: so nothing is shown of a transaction that is not older than
-- every one still under way, and a reader who goes on from the last id it has seen never misses one (C11.1).
SELECT
    e.id, e.at, e.task_id::text AS task_id, coalesce(t.run_id, e.run_id) AS run_id, e.kind, e.actor, e.attempt, e.data,
    t.name, t.queue, t.parents, t.max_attempts
FROM (
    SELECT * FROM {schema}.events
    WHERE id > $1::bigint AND xid < pg_snapshot_xmin(pg_current_snapshot())
    ORDER BY id LIMIT $2::bigint
) AS e
LEFT JOIN {schema}.tasks AS t ON t.id = e.task_id
ORDER BY e.id
