-- Whose end keeps these tasks from running, in the order in which they name them. One that is gone without having been
-- counted did not complete.
SELECT e.child::text AS child, e.parent::text AS parent, p.canceled_because
FROM unnest($1::uuid[]) AS g (id)
JOIN {schema}.edges AS e ON e.child = g.id AND NOT e.counted AND NOT e.anyway
LEFT JOIN {schema}.tasks AS p ON p.id = e.parent
WHERE p.id IS NULL OR p.status IN ('failed', 'canceled')
ORDER BY e.child, e.position
