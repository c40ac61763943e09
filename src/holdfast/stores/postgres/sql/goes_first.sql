-- Which task of a key goes first, where they go one at a time: one that has begun, or else the first that is due. `runs`: it does.
SELECT first.id::text AS id, first.runs FROM (
    SELECT * FROM (
        SELECT b.id, b.status = 'running' AND b.lease_expires_at > $1::timestamptz AS runs FROM {schema}.tasks AS b
        WHERE b.begun AND b.status IN ('queued', 'running') AND b.queue = $2::text AND b.concurrency_key = $3::text
        ORDER BY b.seq LIMIT 1
    ) AS begun
    UNION ALL
    SELECT * FROM (
        SELECT t.id, false FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = $2::text AND t.concurrency_key = $3::text
          AND t.run_at <= $1::timestamptz
        ORDER BY t.run_at, t.seq LIMIT 1
    ) AS line
) AS first
LIMIT 1
