-- Newest first: an id begins with its time. Planned anew for every call (see pool.py), so that a condition that was not asked for costs nothing.
SELECT
    t.id::text AS id, t.name, t.queue, t.payload, t.priority, t.status, t.run_at, t.attempt, t.failures, t.max_attempts,
    t.backoff, t.timeout, t.lease, t.claimed_by, t.lease_expires_at, t.cancel_requested_at, t.canceled_because,
    t.idempotency_key, t.concurrency_key, t.run_id,
    {include parents}, t.on_parent_failure, t.result, t.last_error, t.last_error_at, t.meta, t.inputs,
    t.created_at, t.started_at, t.claimed_at, t.finished_at
FROM {schema}.tasks AS t
WHERE ($1::text IS NULL OR t.status = $1::text)
  AND ($2::text IS NULL OR t.queue = $2::text)
  AND ($3::text IS NULL OR t.name = $3::text)
  AND ($4::text IS NULL OR t.run_id = $4::text)
  AND ($5::timestamptz IS NULL OR t.finished_at < $5::timestamptz)
  AND ($6::uuid IS NULL OR t.id < $6::uuid)
  AND (NOT $7::boolean OR t.dependents = 0)
ORDER BY t.id DESC
LIMIT $8::bigint
