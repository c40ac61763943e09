-- Ended tasks of one status that are old enough to go, oldest first, locked; members of a live run stay.
SELECT t.finished_at, t.seq, t.queue, t.status FROM {schema}.tasks AS t
WHERE t.finished_at IS NOT NULL AND t.status = $2::text
  AND t.finished_at <= coalesce($1::timestamptz, now()) - $3::bigint * interval '1 microsecond'
  AND (t.run_id IS NULL OR NOT EXISTS (
      SELECT FROM {schema}.tasks AS live
      WHERE live.run_id = t.run_id AND live.run_id IS NOT NULL AND live.status IN ('waiting', 'queued', 'running')
  ))
ORDER BY t.finished_at, t.seq
LIMIT $4::bigint
FOR UPDATE OF t SKIP LOCKED
