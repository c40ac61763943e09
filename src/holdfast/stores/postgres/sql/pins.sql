INSERT INTO {schema}.pins (task_id, dataset, version) SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[])
