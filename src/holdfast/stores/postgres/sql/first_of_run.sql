SELECT t.id::text FROM {schema}.tasks AS t
WHERE t.run_id = $1::text AND t.run_id IS NOT NULL ORDER BY t.id LIMIT 1
