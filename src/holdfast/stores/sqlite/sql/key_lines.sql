-- The first due tasks of each of these keys.
SELECT json_group_array(json_array(-t.priority, t.run_at, t.seq, t.concurrency_key))
FROM json_each(:keys) AS given CROSS JOIN holdfast_tasks AS t ON t.seq IN (
    SELECT n.seq FROM holdfast_tasks AS n
    WHERE n.status = 'queued' AND n.queue = :queue AND n.concurrency_key = given.value
      AND n.concurrency_key IS NOT NULL AND n.run_at <= :now
    ORDER BY n.run_at, n.seq LIMIT :limit
)
