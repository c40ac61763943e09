-- Live members of a run that end together, in the order of submission.
SELECT json_group_array(json_array(seq, id)) FROM (
    SELECT seq, id FROM holdfast_tasks
    WHERE run_id = :run_id AND fail_fast = :fail_fast AND fail_fast IS NOT NULL
      AND status IN ('waiting', 'queued', 'running') AND seq > :after
    ORDER BY seq LIMIT :limit
)
