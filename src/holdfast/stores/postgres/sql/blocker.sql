-- One whose end keeps this task, which has very many parents, from running: looked for among what has not ended well in
-- its run, which is less.
SELECT p.id::text AS parent, p.canceled_because
FROM {schema}.tasks AS p
JOIN {schema}.edges AS e ON e.parent = p.id AND e.child = $2::uuid AND NOT e.counted AND NOT e.anyway
WHERE p.run_id = $1::text AND p.run_id IS NOT NULL AND p.status IN ('failed', 'canceled')
ORDER BY p.id LIMIT 1
