-- The oldest of what verbs have left to be done.
SELECT a.id, a.kind, a.status, a.actor, a.child, a.position, t.seq, t.id, t.run_id, t.status, t.canceled_because,
    t.dependents, t.fail_fast
FROM holdfast_advances AS a CROSS JOIN holdfast_tasks AS t ON t.seq = a.task
ORDER BY a.id LIMIT 1
