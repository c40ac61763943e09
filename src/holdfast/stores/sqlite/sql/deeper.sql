-- For each of these lines: its best priority below the given one that has due tasks. Seeks only.
WITH RECURSIVE level (queue, keyed, priority) AS (
    SELECT given.value ->> 0, given.value ->> 1, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = given.value ->> 0 AND t.keyed = given.value ->> 1
          AND t.priority < :below
    )
    FROM json_each(:lines) AS given
    UNION ALL
    SELECT level.queue, level.keyed, (
        SELECT max(t.priority) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority < level.priority
    )
    FROM level
    WHERE level.priority IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
          AND t.run_at <= :now
    )
)
SELECT json_group_array(json_array(queue, keyed, priority)) FROM level
WHERE priority IS NOT NULL AND EXISTS (
    SELECT 1 FROM holdfast_tasks AS t
    WHERE t.status = 'queued' AND t.queue = level.queue AND t.keyed = level.keyed AND t.priority = level.priority
      AND t.run_at <= :now
)
