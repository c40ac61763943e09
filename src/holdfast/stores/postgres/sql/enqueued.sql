-- The events and counts of tasks that were copied in.
WITH noted AS (
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    SELECT g.id, $1::timestamptz, 'task.enqueued', 'client', 0 FROM unnest($2::text::uuid[]) AS g (id)
)
INSERT INTO {schema}.counts (queue, waiting, queued)
SELECT * FROM unnest($3::text[], $4::bigint[], $5::bigint[])
