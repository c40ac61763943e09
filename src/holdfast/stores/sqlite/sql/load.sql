-- The columns of rows.Record, for these ids.
SELECT json_group_array(json_array(
    t.seq, t.id, t.name, t.queue, t.run_id, t.max_attempts, t.policy, t.attempt, t.claimed_at, t.lease_length,
    t.last_error ->> '$.code', t.dependents, t.delay, t.fail_fast, t.on_parent_failure, t.concurrency_key,
    t.status, t.run_at, t.failures, t.claimed_by, t.token, t.claim_id, t.lease_expires_at, t.settled_token,
    t.settled_as, t.settled_status, t.cancel_requested_at, t.canceled_because, t.finished_at, t.pending, t.begun,
    t.placed
))
FROM json_each(:ids) AS given CROSS JOIN holdfast_tasks AS t ON t.id = given.value
