-- The lease on one task that this claim was granted.
SELECT
    t.id::text AS id, t.attempt, t.token::text AS token, t.claimed_by, t.lease_expires_at, t.lease_micros, t.name,
    t.queue, t.payload, t.priority, t.failures, t.max_attempts, t.timeout, t.run_id, t.meta, t.created_at, t.claimed_at
FROM {schema}.tasks AS t
WHERE t.id = $2::uuid AND t.status = 'running' AND t.claim_id = $1::text
