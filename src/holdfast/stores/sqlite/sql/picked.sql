SELECT json_group_array(json_array(
    t.seq, t.id, t.name, t.queue, t.payload, t.priority, t.attempt, t.failures, t.max_attempts, t.policy, t.run_id,
    t.meta, t.created_at
))
FROM json_each(:tasks) AS given CROSS JOIN holdfast_tasks AS t ON t.seq = given.value
