-- A new attempt for one task that this transaction has locked.
WITH claimed AS (
    UPDATE {schema}.tasks
    SET status = 'running', attempt = attempt + 1, token = gen_random_uuid(), claim_id = $3::text,
        claimed_by = $4::text, claimed_at = $1::timestamptz, started_at = coalesce(started_at, $1::timestamptz),
        lease_micros = $5::bigint, lease_expires_at = $1::timestamptz + $5::bigint * interval '1 microsecond'
    WHERE seq = $2::bigint
    RETURNING *
)
SELECT
    seq, id::text AS id, attempt, token::text AS token, claimed_by, lease_expires_at, lease_micros, name, queue,
    payload, priority, failures, max_attempts, timeout, run_id, meta, created_at, claimed_at, run_at
FROM claimed
