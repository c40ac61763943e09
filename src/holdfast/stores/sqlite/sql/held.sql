-- Leases that were granted to a claim whose reply was lost, in the order of the first answer.
SELECT json_group_array(json_array(
    seq, id, name, queue, payload, priority, attempt - 1, failures, max_attempts, policy, run_id, meta, created_at,
    token, claimed_by, lease_length, lease_expires_at, claimed_at
))
FROM (
    SELECT * FROM holdfast_tasks WHERE status = 'running' AND claim_id = :claim_id ORDER BY priority DESC, run_at, seq
)
