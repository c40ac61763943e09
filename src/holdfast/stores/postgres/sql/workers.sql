SELECT
    w.id, w.host, w.pid, w.queues, w.concurrency, w.version, w.names, w.remote, w.started_at, w.seen_at,
    coalesce(r.running, 0) AS running
FROM {schema}.workers AS w
LEFT JOIN (
    SELECT claimed_by, count(*) AS running FROM {schema}.tasks WHERE status = 'running' GROUP BY claimed_by
) AS r ON r.claimed_by = w.id
ORDER BY w.seq
