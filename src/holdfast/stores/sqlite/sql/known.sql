-- Tasks with one of these ids or idempotency keys, as they were submitted.
SELECT json_group_array(json_array(
    t.seq, t.id, t.name, t.queue, t.payload, t.priority, t.max_attempts, t.policy, t.idempotency_key,
    t.concurrency_key, t.run_id, t.parents, t.on_parent_failure, t.fail_fast, t.meta, t.inputs
))
FROM (
    SELECT t.seq AS seq FROM json_each(:ids) AS given CROSS JOIN holdfast_tasks AS t ON t.id = given.value
    UNION
    SELECT t.seq FROM json_each(:keys) AS given
    CROSS JOIN holdfast_tasks AS t ON t.idempotency_key = given.value AND t.idempotency_key IS NOT NULL
) AS found
CROSS JOIN holdfast_tasks AS t ON t.seq = found.seq
