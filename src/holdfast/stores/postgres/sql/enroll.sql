INSERT INTO {schema}.workers (
    id, nonce, host, pid, queues, concurrency, version, names, remote, started_at, seen_at
)
SELECT
    $2::text, $3::bigint, $4::text, $5::bigint, $6::text, $7::integer, $8::text, $9::text, $10::boolean, moment.now,
    moment.now
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT (id) DO UPDATE SET nonce = excluded.nonce, host = excluded.host, pid = excluded.pid,
    queues = excluded.queues, concurrency = excluded.concurrency, version = excluded.version, names = excluded.names,
    remote = excluded.remote, seen_at = excluded.seen_at
WHERE workers.remote OR NOT excluded.remote OR workers.nonce IS NULL
