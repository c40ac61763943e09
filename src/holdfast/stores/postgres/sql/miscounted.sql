-- The first queue and status whose count is not the real one. One statement, so one moment.
SELECT queue, status
FROM (
    SELECT c.queue, s.status, sum(s.n) AS n
    FROM {schema}.counts AS c
    CROSS JOIN LATERAL (VALUES
        ('waiting', c.waiting), ('queued', c.queued), ('running', c.running),
        ('completed', c.completed), ('failed', c.failed), ('canceled', c.canceled)
    ) AS s (status, n)
    GROUP BY c.queue, s.status
    UNION ALL
    SELECT queue, status, -count(*) FROM {schema}.tasks GROUP BY queue, status
) AS either
GROUP BY queue, status HAVING sum(n) <> 0
ORDER BY queue, status LIMIT 1
