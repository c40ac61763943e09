-- The first due tasks of one queue at one priority; read from the index alone.
SELECT json_group_array(json_array(run_at, seq)) FROM (
    SELECT run_at, seq FROM holdfast_tasks
    WHERE status = 'queued' AND queue = :queue AND priority = :priority AND run_at <= :now
    ORDER BY run_at, seq LIMIT :limit
)
