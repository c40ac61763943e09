-- Some of what waits for a sink.
WITH gone AS (
    DELETE FROM {schema}.outbox WHERE id = ANY (ARRAY(
        SELECT one.id FROM (
            (SELECT o.id FROM {schema}.outbox AS o WHERE o.sink = $1::text AND o.state = 'pending' LIMIT $2::bigint)
            UNION ALL
            (SELECT o.id FROM {schema}.outbox AS o WHERE o.sink = $1::text AND o.state = 'dead' LIMIT $2::bigint)
        ) AS one
    ))
    RETURNING id
)
SELECT count(*) FROM gone
