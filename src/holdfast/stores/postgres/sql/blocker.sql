-- One whose end keeps this task, which has very many parents, from running: looked for first among what has not ended
-- well in its run, which is less. One that is gone without having been counted did not complete.
SELECT broken.parent, broken.canceled_because, false AS gone
FROM (
    SELECT p.id::text AS parent, p.canceled_because
    FROM {schema}.tasks AS p
    JOIN {schema}.edges AS e ON e.parent = p.id AND e.child = $2::uuid AND NOT e.counted AND NOT e.anyway
    WHERE p.run_id = $1::text AND p.run_id IS NOT NULL AND p.status IN ('failed', 'canceled')
    ORDER BY p.id LIMIT 1
) AS broken
UNION ALL
SELECT gone.parent, NULL, true
FROM (
    SELECT e.parent::text AS parent FROM {schema}.edges AS e
    WHERE e.child = $2::uuid AND NOT e.counted AND NOT e.anyway
      AND NOT EXISTS (SELECT FROM {schema}.tasks AS p WHERE p.id = e.parent)
    ORDER BY e.position LIMIT 1
) AS gone
LIMIT 1
