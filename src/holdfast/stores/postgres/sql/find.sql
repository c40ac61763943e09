SELECT
    t.id::text AS id, t.name, t.queue, t.payload, t.priority, t.status, t.run_at, t.attempt, t.failures, t.max_attempts,
    t.backoff, t.timeout, t.lease, t.claimed_by, t.lease_expires_at, t.cancel_requested_at, t.canceled_because,
    t.idempotency_key, t.concurrency_key, t.run_id,
    {include parents}, t.on_parent_failure, t.result, t.last_error, t.last_error_at, t.meta, t.inputs,
    t.created_at, t.started_at, t.claimed_at, t.finished_at
FROM {schema}.tasks AS t
WHERE t.idempotency_key = $1::text AND t.idempotency_key IS NOT NULL
