SELECT paused FROM {schema}.queues WHERE name = $1::text
