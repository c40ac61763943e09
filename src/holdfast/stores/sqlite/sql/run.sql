-- The tasks of a run by status and by whether others wait for them.
SELECT json_group_array(json_array(status, last, n, created_at, finished_at)) FROM (
    SELECT status, dependents = 0 AS last, count(*) AS n, min(created_at) AS created_at,
        max(finished_at) AS finished_at
    FROM holdfast_tasks WHERE run_id = :run_id AND run_id IS NOT NULL GROUP BY 1, 2
)
