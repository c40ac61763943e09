-- When the next task of these queues falls due: one seek per priority that has queued tasks.
WITH RECURSIVE level (queue, priority) AS (
    SELECT given.value, (
        SELECT max(t.priority) FROM holdfast_tasks AS t WHERE t.status = 'queued' AND t.queue = given.value
    )
    FROM json_each(:queues) AS given
    UNION ALL
    SELECT level.queue, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority < level.priority
    )
    FROM level WHERE level.priority IS NOT NULL
)
SELECT min((
    SELECT min(t.run_at) FROM holdfast_tasks AS t
    WHERE t.status = 'queued' AND t.queue = level.queue AND t.priority = level.priority AND t.run_at > :now
))
FROM level WHERE priority IS NOT NULL
