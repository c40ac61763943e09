-- How the parents of a task have ended, in the order in which it names them.
SELECT json_group_array(json_array(p.seq, p.id, p.name, p.status, p.result, p.last_error, p.last_error_at))
FROM (
    SELECT e.parent FROM holdfast_edges AS e
    WHERE e.child = (SELECT seq FROM holdfast_tasks WHERE id = :task_id) AND e.position >= :after
      AND e.position < :until
    ORDER BY e.position
) AS named
CROSS JOIN holdfast_tasks AS p ON p.seq = named.parent
