SELECT
    coalesce(c.queue, q.name) AS name, coalesce(q.paused, false) AS paused, coalesce(c.rows, 0) AS rows,
    c.waiting, c.queued, c.running, c.completed, c.failed, c.canceled
FROM (
    SELECT
        queue, count(*) AS rows, sum(waiting)::bigint AS waiting, sum(queued)::bigint AS queued,
        sum(running)::bigint AS running, sum(completed)::bigint AS completed, sum(failed)::bigint AS failed,
        sum(canceled)::bigint AS canceled
    FROM {schema}.counts GROUP BY queue
) AS c
FULL JOIN {schema}.queues AS q ON q.name = c.queue
ORDER BY 1
