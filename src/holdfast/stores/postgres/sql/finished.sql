DELETE FROM {schema}.advances WHERE task_id = $1::uuid AND kind = $2::text
