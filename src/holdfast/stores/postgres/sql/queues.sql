SELECT
    coalesce(c.queue, q.name) AS name, coalesce(q.paused, false) AS paused, coalesce(c.rows, 0) AS rows,
    c.waiting, c.queued, c.running, c.completed, c.failed, c.canceled,
    q.max_running, q.rate_count, q.rate_micros, coalesce(q.burst, 1) AS burst, q.max_running_per_key,
    coalesce(q.rate_tat, 0) AS rate_tat, clock_timestamp() AS now
FROM (
    SELECT
        queue, count(*) AS rows, sum(waiting)::bigint AS waiting, sum(queued)::bigint AS queued,
        sum(running)::bigint AS running, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
        sum(canceled)::bigint AS canceled
    FROM {schema}.counts GROUP BY queue
) AS c
FULL JOIN {schema}.queues AS q ON q.name = c.queue
ORDER BY 1
