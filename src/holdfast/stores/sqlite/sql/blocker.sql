-- The same for one task of a run with very many parents: by the run's ended tasks, of which there are few.
SELECT p.id, p.canceled_because FROM holdfast_tasks AS p
WHERE p.run_id = :run_id AND p.dependents > 0 AND p.status IN ('failed', 'canceled')
  AND EXISTS (SELECT 1 FROM holdfast_edges AS e WHERE e.parent = p.seq AND e.child = :child)
LIMIT 1
