-- Ended tasks that are old enough to go, oldest first, locked; members of a live run stay. An age that is NULL keeps all.
SELECT * FROM (
    SELECT * FROM (
        SELECT t.finished_at, t.id::text AS id, t.queue, t.status FROM {schema}.tasks AS t
        WHERE t.status = 'completed'
          AND t.finished_at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
          AND (t.run_id IS NULL OR NOT EXISTS (
              SELECT FROM {schema}.tasks AS live
              WHERE live.run_id = t.run_id AND live.run_id IS NOT NULL AND live.status IN ('waiting', 'queued', 'running')
          ))
        ORDER BY t.finished_at LIMIT $5::bigint FOR UPDATE OF t SKIP LOCKED
    ) AS completed
    UNION ALL
    SELECT * FROM (
        SELECT t.finished_at, t.id::text AS id, t.queue, t.status FROM {schema}.tasks AS t
        WHERE t.status = 'failed'
          AND t.finished_at <= coalesce($1::timestamptz, now()) - $3::bigint * interval '1 microsecond'
          AND (t.run_id IS NULL OR NOT EXISTS (
              SELECT FROM {schema}.tasks AS live
              WHERE live.run_id = t.run_id AND live.run_id IS NOT NULL AND live.status IN ('waiting', 'queued', 'running')
          ))
        ORDER BY t.finished_at LIMIT $5::bigint FOR UPDATE OF t SKIP LOCKED
    ) AS failed
    UNION ALL
    SELECT * FROM (
        SELECT t.finished_at, t.id::text AS id, t.queue, t.status FROM {schema}.tasks AS t
        WHERE t.status = 'canceled'
          AND t.finished_at <= coalesce($1::timestamptz, now()) - $4::bigint * interval '1 microsecond'
          AND (t.run_id IS NULL OR NOT EXISTS (
              SELECT FROM {schema}.tasks AS live
              WHERE live.run_id = t.run_id AND live.run_id IS NOT NULL AND live.status IN ('waiting', 'queued', 'running')
          ))
        ORDER BY t.finished_at LIMIT $5::bigint FOR UPDATE OF t SKIP LOCKED
    ) AS canceled
) AS old
ORDER BY old.finished_at, old.id LIMIT $5::bigint
