WITH gone AS (DELETE FROM {schema}.events WHERE task IS NOT NULL AND task = ANY ($1::bigint[]))
DELETE FROM {schema}.tasks WHERE seq = ANY ($1::bigint[])
