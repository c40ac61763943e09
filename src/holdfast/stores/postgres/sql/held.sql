-- What is left of the leases that were granted to a claim, in the order of the first answer.
SELECT
    t.id::text AS id, t.attempt, t.token::text AS token, t.claimed_by, t.lease_expires_at, t.lease_micros, t.name,
    t.queue, t.payload, t.priority, t.failures, t.max_attempts, t.timeout, t.run_id, t.meta, t.created_at, t.claimed_at
FROM {schema}.claims AS c
CROSS JOIN LATERAL unnest(c.tasks) AS g (id)
JOIN {schema}.tasks AS t ON t.id = g.id
WHERE c.claim_id = $1::text AND t.status = 'running' AND t.claim_id = $1::text
ORDER BY t.priority DESC, t.run_at, t.seq
