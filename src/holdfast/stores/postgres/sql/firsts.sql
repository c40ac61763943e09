-- Where the queued tasks of these shelves begin, from the given places on.
SELECT g.n, one.run_at, one.seq
FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bigint[])
    WITH ORDINALITY AS g (queue, priority, run_at, seq, n)
CROSS JOIN LATERAL (
    SELECT t.run_at, t.seq FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue = g.queue AND t.priority = g.priority
      AND (t.run_at, t.seq) >= (g.run_at, g.seq)
    ORDER BY t.run_at, t.seq LIMIT 1
) AS one
