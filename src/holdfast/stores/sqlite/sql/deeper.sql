-- For each of these queues: its best priority below the given one that has due tasks. Seeks only.
WITH RECURSIVE level (queue, priority) AS (
    SELECT given.value, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = given.value AND t.priority < :below
    )
    FROM json_each(:queues) AS given
    UNION ALL
    SELECT level.queue, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority < level.priority
    )
    FROM level
    WHERE level.priority IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority = level.priority AND t.run_at <= :now
    )
)
SELECT json_group_array(json_array(queue, priority)) FROM level
WHERE priority IS NOT NULL AND EXISTS (
    SELECT 1 FROM holdfast_tasks AS t
    WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority = level.priority AND t.run_at <= :now
)
