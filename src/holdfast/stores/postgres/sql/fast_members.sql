-- Live tasks of a run under one name of fail_fast, after $3.
SELECT t.id::text AS id FROM {schema}.tasks AS t
WHERE t.run_id = $1::text AND t.run_id IS NOT NULL AND t.status IN ('waiting', 'queued', 'running')
  AND t.fail_fast = $2::text AND t.id > $3::uuid
ORDER BY t.id LIMIT $4::bigint
