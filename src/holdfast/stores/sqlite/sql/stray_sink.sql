-- A sink that is gone while rows still wait for it. Every name is found by one seek.
WITH RECURSIVE named (sink) AS (
    SELECT min(o.sink) FROM holdfast_outbox AS o WHERE o.state = 'pending'
    UNION ALL
    SELECT (SELECT min(o.sink) FROM holdfast_outbox AS o WHERE o.state = 'pending' AND o.sink > named.sink)
    FROM named WHERE named.sink IS NOT NULL
)
SELECT named.sink FROM named
WHERE named.sink IS NOT NULL AND NOT EXISTS (SELECT 1 FROM holdfast_sinks AS s WHERE s.name = named.sink)
LIMIT 1
