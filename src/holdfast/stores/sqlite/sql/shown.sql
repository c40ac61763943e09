-- The columns of rows.ShownRow, for these tasks, in this order.
SELECT json_group_array(json_array(
    t.seq, t.id, t.name, t.queue, t.payload, t.priority, t.status, t.run_at, t.attempt, t.failures, t.max_attempts,
    t.policy, t.claimed_by, t.lease_expires_at, t.cancel_requested_at, t.canceled_because, t.idempotency_key,
    t.concurrency_key, t.run_id, t.parents, t.on_parent_failure, t.result, t.last_error, t.last_error_at, t.meta,
    t.created_at, t.started_at, t.claimed_at, t.finished_at, t.inputs
))
FROM json_each(:tasks) AS given CROSS JOIN holdfast_tasks AS t ON t.seq = given.value
