-- The place of a parent that is gone although the task still waits for it.
SELECT e.position FROM holdfast_edges AS e
WHERE e.child = :child AND NOT EXISTS (SELECT 1 FROM holdfast_tasks AS p WHERE p.seq = e.parent)
ORDER BY e.position LIMIT 1
