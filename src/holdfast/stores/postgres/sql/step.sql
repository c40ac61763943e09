-- What a step gave, unless it is known already.
INSERT INTO {schema}.steps (task_id, at, name, result) VALUES ($1::uuid, $2::timestamptz, $3::text, $4::text)
ON CONFLICT (task_id, name) DO NOTHING
