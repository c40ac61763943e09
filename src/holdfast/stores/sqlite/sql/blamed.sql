-- What is canceled because of a task, in the order of submission.
SELECT json_group_array(json_array(seq, id)) FROM (
    SELECT seq, id FROM holdfast_tasks
    WHERE canceled_because = :task_id AND canceled_because IS NOT NULL AND seq > :after
    ORDER BY seq LIMIT :limit
)
