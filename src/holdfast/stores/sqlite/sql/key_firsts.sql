-- For each of these keys the task that goes first where they go in order: one that has begun, or else the first that is
-- due. The last column: it may start.
SELECT json_group_array(json_array(
    -t.priority, t.run_at, t.seq, t.concurrency_key, t.id,
    t.status = 'queued' AND t.run_at <= :now AND NOT EXISTS (
        SELECT 1 FROM holdfast_tasks AS r
        WHERE r.placed AND r.queue = :queue AND r.concurrency_key = given.value AND r.lease_expires_at > :now
    )
))
FROM json_each(:keys) AS given CROSS JOIN holdfast_tasks AS t ON t.seq = coalesce(
    (
        SELECT min(b.seq) FROM holdfast_tasks AS b
        WHERE b.begun AND b.queue = :queue AND b.concurrency_key = given.value AND b.concurrency_key IS NOT NULL
    ),
    (
        SELECT n.seq FROM holdfast_tasks AS n
        WHERE n.status = 'queued' AND n.queue = :queue AND n.concurrency_key = given.value
          AND n.concurrency_key IS NOT NULL AND n.run_at <= :now
        ORDER BY n.run_at, n.seq LIMIT 1
    )
)
