WITH again AS (
    UPDATE {schema}.outbox AS o SET state = 'pending', tries = 0, due_at = moment.now, free_at = moment.now
    FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now OFFSET 0) AS moment
    WHERE o.id = ANY ($2::bigint[]) AND o.state = 'dead'
    RETURNING o.id
)
SELECT count(*) FROM again
