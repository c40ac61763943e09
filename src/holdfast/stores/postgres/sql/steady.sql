-- Those of these tasks that have not ended well and will not come back before this transaction is over: nobody else is at
-- them. Never waited for: they stand before the tasks that are locked already (docs/adr/0012-workflows.md).
SELECT t.id::text AS id, t.canceled_because FROM {schema}.tasks AS t
WHERE t.id = ANY ($1::uuid[]) AND t.status IN ('failed', 'canceled')
ORDER BY t.id FOR SHARE SKIP LOCKED
