-- The newest runs by their first task, or those before a given one. One seek per run.
WITH RECURSIVE named (run_id) AS (
    SELECT min(run_id) FROM holdfast_tasks WHERE run_id IS NOT NULL
    UNION ALL
    SELECT (SELECT min(t.run_id) FROM holdfast_tasks AS t WHERE t.run_id > named.run_id AND t.run_id IS NOT NULL)
    FROM named WHERE named.run_id IS NOT NULL
),
first (run_id, seq) AS (
    SELECT run_id, (SELECT min(t.seq) FROM holdfast_tasks AS t WHERE t.run_id = named.run_id AND t.run_id IS NOT NULL)
    FROM named WHERE run_id IS NOT NULL
)
SELECT json_group_array(run_id) FROM (
    SELECT run_id FROM first WHERE :before IS NULL OR seq < :before ORDER BY seq DESC LIMIT :limit
)
