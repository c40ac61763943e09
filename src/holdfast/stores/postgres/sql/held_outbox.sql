-- The instant, and what policy asks of these rows, locked.
WITH locked AS MATERIALIZED (
    SELECT o.id, o.hold, o.effect, o.sink, o.task_id::text AS task_id, o.tries, o.told
    FROM {schema}.outbox AS o WHERE o.id = ANY ($2::bigint[]) ORDER BY o.id FOR UPDATE
)
SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, locked.* FROM locked
