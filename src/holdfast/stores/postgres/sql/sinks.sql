-- The sinks and what waits for them, each number up to $2. For wake-ups: what is due, and what has failed or is in
-- hand. For events: all.
SELECT
    s.name, s.url, s.effect, s.kinds, s.queues, s.private, s.signed, s.created_at, least(w.n, $2::bigint) AS pending,
    w.oldest_at,
    (
        SELECT count(*) FROM (
            SELECT FROM {schema}.outbox AS o
            WHERE o.sink = s.name AND o.state = 'dead' AND (o.effect <> 'enqueue_task' OR NOT {include replaced})
            LIMIT $2::bigint
        ) AS dead
    ) AS dead
FROM {schema}.sinks AS s
CROSS JOIN (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now OFFSET 0) AS moment
CROSS JOIN LATERAL (
    SELECT count(*) AS n, min(o.created_at) AS oldest_at
    FROM (
        (
            SELECT o.created_at FROM {schema}.outbox AS o
            WHERE s.effect = 'route_event' AND o.sink = s.name AND o.state = 'pending'
            ORDER BY o.task_id LIMIT $2::bigint
        )
        UNION ALL
        (
            SELECT o.created_at FROM {schema}.outbox AS o
            WHERE s.effect = 'enqueue_task' AND o.sink = s.name AND o.free_at <= moment.now AND o.free_at IS NOT NULL
              AND NOT {include replaced}
            ORDER BY o.free_at LIMIT $2::bigint
        )
        UNION ALL
        (
            SELECT o.created_at FROM {schema}.outbox AS o
            WHERE s.effect = 'enqueue_task' AND o.sink = s.name AND o.state = 'pending'
              AND (o.last_error IS NOT NULL OR o.hold IS NOT NULL) AND o.free_at > moment.now
            LIMIT $2::bigint
        )
    ) AS o
) AS w
ORDER BY s.name
