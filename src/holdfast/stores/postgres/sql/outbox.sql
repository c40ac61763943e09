-- By id; those that are pending, or that are not, or all. Wake-ups that a later one has replaced are not shown.
SELECT
    o.event_id AS id, o.created_at AS at, o.task_id::text AS task_id, o.run_id, o.kind, o.actor, o.attempt, o.data, o.name,
    o.queue, o.parents, o.max_attempts, o.id AS row_id, o.sink, o.effect, o.state, o.due_at, o.tries, o.last_error, o.told
FROM {schema}.outbox AS o
WHERE o.id > $1::bigint
  AND ($3::text IS NULL OR o.sink = $3::text)
  AND ($4::boolean IS NOT TRUE OR o.state = 'pending')
  AND ($4::boolean IS NOT FALSE OR o.state = 'dead')
  AND (o.effect <> 'enqueue_task' OR NOT {include replaced})
ORDER BY o.id LIMIT $2::bigint
