-- Changed records: their id, then the columns of rows.Record from `status` on.
UPDATE {schema}.tasks AS t
SET status = g.status, run_at = g.run_at, failures = g.failures, claimed_by = g.claimed_by, token = g.token,
    claim_id = g.claim_id, lease_expires_at = g.lease_expires_at, settled_token = g.settled_token,
    settled_as = g.settled_as, settled_status = g.settled_status, cancel_requested_at = g.cancel_requested_at,
    canceled_because = g.canceled_because, finished_at = g.finished_at, pending = g.pending, result = g.result,
    last_error = coalesce(g.last_error, t.last_error), last_error_at = coalesce(g.last_error_at, t.last_error_at),
    begun = t.begun AND t.status IN ('queued', 'running') AND g.status IN ('queued', 'running')
FROM unnest(
    $1::uuid[], $2::text[], $3::timestamptz[], $4::integer[], $5::text[], $6::uuid[], $7::text[], $8::timestamptz[],
    $9::uuid[], $10::text[], $11::text[], $12::timestamptz[], $13::text[], $14::timestamptz[], $15::integer[],
    $16::text[], $17::text[], $18::timestamptz[]
) AS g (
    id, status, run_at, failures, claimed_by, token, claim_id, lease_expires_at, settled_token, settled_as,
    settled_status, cancel_requested_at, canceled_because, finished_at, pending, result, last_error, last_error_at
)
WHERE t.id = g.id
