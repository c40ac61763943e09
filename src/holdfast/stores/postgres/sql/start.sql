-- A new attempt for one task that this transaction has locked, and its mark: the same claim again gets this one.
WITH mark AS (
    INSERT INTO {schema}.claims AS c (claim_id, at, tasks) VALUES ($3::text, $1::timestamptz, ARRAY[$2::uuid])
    ON CONFLICT (claim_id) DO UPDATE SET at = excluded.at, tasks = c.tasks || excluded.tasks
)
UPDATE {schema}.tasks AS t
SET status = 'running', attempt = t.attempt + 1, token = $6::uuid, claim_id = $3::text,
    claimed_by = $4::text, claimed_at = $1::timestamptz, started_at = coalesce(t.started_at, $1::timestamptz),
    lease_micros = $5::bigint, lease_expires_at = $1::timestamptz + $5::bigint * interval '1 microsecond',
    begun = t.begun OR $7::boolean
WHERE t.id = $2::uuid
RETURNING
    t.id::text AS id, t.attempt, t.token::text AS token, t.claimed_by, t.lease_expires_at, t.lease_micros, t.name,
    t.queue, t.payload, t.priority, t.failures, t.max_attempts, t.timeout, t.run_id, t.meta, t.created_at, t.claimed_at
