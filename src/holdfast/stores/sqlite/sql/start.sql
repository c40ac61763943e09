-- A new attempt for each of these tasks (seq → token), under leases of one length.
UPDATE holdfast_tasks
SET status = 'running', attempt = attempt + 1, token = given.value, claim_id = :claim_id, claimed_by = :worker_id,
    lease_length = :length, lease_expires_at = :now + :length, claimed_at = :now,
    started_at = coalesce(started_at, :now), begun = 1, placed = :placed
FROM json_each(:tokens) AS given
WHERE seq = given.key
