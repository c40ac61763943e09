-- Rows for a sink that was deleted while their transaction was open: nobody takes them. Every name is found by one seek.
WITH RECURSIVE named (sink) AS (
    (SELECT o.sink FROM {schema}.outbox AS o WHERE o.state = 'pending' ORDER BY o.sink LIMIT 1)
    UNION ALL
    SELECT (
        SELECT o.sink FROM {schema}.outbox AS o
        WHERE o.state = 'pending' AND o.sink > named.sink ORDER BY o.sink LIMIT 1
    )
    FROM named WHERE named.sink IS NOT NULL
)
DELETE FROM {schema}.outbox WHERE id = ANY (ARRAY(
    SELECT stray.id
    FROM named
    CROSS JOIN LATERAL (
        SELECT o.id FROM {schema}.outbox AS o WHERE o.sink = named.sink AND o.state = 'pending' LIMIT $1::bigint
    ) AS stray
    WHERE NOT EXISTS (SELECT FROM {schema}.sinks AS s WHERE s.name = named.sink)
    LIMIT $1::bigint
))
