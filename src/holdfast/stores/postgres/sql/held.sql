-- Leases that were granted to a claim whose reply was lost, in the order of the first answer.
SELECT
    seq, id::text AS id, attempt, token::text AS token, claimed_by, lease_expires_at, lease_micros, name, queue,
    payload, priority, failures, max_attempts, timeout, run_id, meta, created_at, claimed_at, run_at
FROM {schema}.tasks
WHERE status = 'running' AND claim_id = $1::text
ORDER BY priority DESC, run_at, seq
