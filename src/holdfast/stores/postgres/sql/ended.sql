-- Of these tasks those that have ended, and those that do not exist: all but the id is NULL there.
SELECT
    g.id::text AS id, t.name, t.queue, t.payload, t.priority, t.status, t.run_at, t.attempt, t.failures, t.max_attempts,
    t.backoff, t.timeout, t.lease, t.claimed_by, t.lease_expires_at, t.cancel_requested_at, t.canceled_because,
    t.idempotency_key, t.concurrency_key, t.run_id,
    {include parents}, t.on_parent_failure, t.result, t.last_error, t.last_error_at, t.meta, t.inputs,
    t.created_at, t.started_at, t.claimed_at, t.finished_at
FROM unnest($1::uuid[]) AS g (id)
LEFT JOIN {schema}.tasks AS t ON t.id = g.id
WHERE t.id IS NULL OR t.status IN ('completed', 'failed', 'canceled')
LIMIT $2::bigint
