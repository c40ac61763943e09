WITH gone AS (DELETE FROM {schema}.outbox WHERE id = ANY ($1::bigint[]) AND state = 'dead' RETURNING id)
SELECT count(*) FROM gone
