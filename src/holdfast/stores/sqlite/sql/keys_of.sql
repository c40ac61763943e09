SELECT json_group_array(t.concurrency_key)
FROM json_each(:tasks) AS given CROSS JOIN holdfast_tasks AS t ON t.seq = given.value
