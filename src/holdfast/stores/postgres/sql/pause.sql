INSERT INTO {schema}.queues (name, paused) VALUES ($1::text, $2::boolean)
ON CONFLICT (name) DO UPDATE SET paused = excluded.paused
