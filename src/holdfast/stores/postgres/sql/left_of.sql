SELECT kind, actor, after_id::text AS after_id, after_n FROM {schema}.advances
WHERE task_id = $1::uuid ORDER BY at LIMIT 1
