INSERT INTO {schema}.queues (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING
