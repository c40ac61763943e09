-- Among the first parents of these tasks, in their order: those whose end keeps the task from running. One that is gone
-- and whose edge is still there was one of them. The last column: the task has more parents than were looked at.
SELECT json_group_array(json_array(e.child, e.position, p.seq, p.id, p.canceled_because, NOT e.position < :first))
FROM json_each(:children) AS given
CROSS JOIN holdfast_edges AS e ON e.child = given.value AND e.position <= :first
LEFT JOIN holdfast_tasks AS p ON p.seq = e.parent
WHERE e.position = :first OR p.seq IS NULL OR p.status IN ('failed', 'canceled')
