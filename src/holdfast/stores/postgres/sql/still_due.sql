-- Which of these queues have due tasks; $2 to $5 are shelves.
SELECT DISTINCT g.queue
FROM unnest($2::text[], $3::smallint[], $4::timestamptz[], $5::bigint[]) AS g (queue, priority, run_at, seq)
WHERE EXISTS (
    SELECT FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue = g.queue AND t.priority = g.priority
      AND (t.run_at, t.seq) >= (g.run_at, g.seq) AND t.run_at <= $1::timestamptz
)
