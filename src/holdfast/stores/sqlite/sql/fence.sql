-- What a plain completion has to know of a task: is the lease current, whose is it, and who waits for its end.
SELECT json_group_array(json_array(
    t.seq, t.id, t.queue, t.status, t.attempt, t.token, t.claimed_by, t.lease_expires_at, t.dependents, t.placed
))
FROM json_each(:ids) AS given CROSS JOIN holdfast_tasks AS t ON t.id = given.value
