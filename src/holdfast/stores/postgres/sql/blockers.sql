-- Whose end keeps these tasks from running, in the order in which they name them. One that is gone without having been
-- counted did not complete. The tasks were locked by an earlier statement:
--   1. Q is requeued, and C, which its failure had canceled, is locked. 2. P, another parent of C, fails and waits for C.
--   3. This statement reads P as running, so C is re-armed. Commit. 4. P finds C waiting and cancels it. In the other
--   order P has committed before C is locked, and this statement, which began after that, reads P as failed.
SELECT e.child::text AS child, e.parent::text AS parent, p.canceled_because, p.id IS NULL AS gone
FROM unnest($1::uuid[]) AS g (id)
JOIN {schema}.edges AS e ON e.child = g.id AND NOT e.counted AND NOT e.anyway
LEFT JOIN {schema}.tasks AS p ON p.id = e.parent
WHERE p.id IS NULL OR p.status IN ('failed', 'canceled')
ORDER BY e.child, e.position
