-- Ended tasks of one status that are old enough to go, oldest first; members of a run that is still live stay.
SELECT json_group_array(json_array(finished_at, seq, queue, status)) FROM (
    SELECT finished_at, seq, queue, status FROM holdfast_tasks AS t
    WHERE finished_at IS NOT NULL AND status = :status AND finished_at <= :before
      AND (run_id IS NULL OR NOT EXISTS (
          SELECT 1 FROM holdfast_tasks AS live
          WHERE live.run_id = t.run_id AND live.run_id IS NOT NULL AND live.status IN ('waiting', 'queued', 'running')
      ))
    ORDER BY finished_at, seq LIMIT :limit
)
