-- Tombstones that are old enough to go.
DELETE FROM {schema}.events WHERE id = ANY (ARRAY(
    SELECT e.id FROM {schema}.events AS e
    WHERE e.kind = 'task.deleted'
      AND e.at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
    ORDER BY e.at, e.id LIMIT $3::bigint FOR UPDATE SKIP LOCKED
))
