SELECT name, result, at FROM {schema}.steps WHERE task_id = $1::uuid ORDER BY seq
