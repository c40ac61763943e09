-- The first due tasks of one line at one priority; read from the index alone.
SELECT json_group_array(json_array(run_at, seq, queue)) FROM (
    SELECT run_at, seq, queue FROM holdfast_tasks
    WHERE status = 'queued' AND queue = :queue AND keyed = :keyed AND priority = :priority AND run_at <= :now
    ORDER BY run_at, seq LIMIT :limit
)
