-- The plain good end of these attempts, for leases that hold, of tasks for which nobody waits ($7 is 0). The answer names
-- tasks only where fewer than $6 were recorded. `freed`: a limited queue may have a place again.
{include done}noted AS (
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    SELECT id, finished_at, 'task.completed', claimed_by, attempt FROM done
),
counted AS (
    INSERT INTO {schema}.counts (queue, running, completed)
    SELECT queue, -count(*), count(*) FROM done GROUP BY queue
)
SELECT
    CASE WHEN count(*) < $6::bigint THEN coalesce(array_agg(id::text), '{}') END AS recorded, bool_or(begun) AS freed
FROM done
