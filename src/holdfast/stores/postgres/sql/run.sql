-- The tasks of a run by status; `last`: of them those that nobody waits for.
SELECT
    t.status, count(*) AS n, count(*) FILTER (WHERE t.dependents = 0) AS last, min(t.created_at) AS created_at,
    max(t.finished_at) AS finished_at
FROM {schema}.tasks AS t WHERE t.run_id = $1::text AND t.run_id IS NOT NULL
GROUP BY t.status
