SELECT q.max_running, q.rate_count, q.rate_micros, q.burst, q.max_running_per_key, q.rate_tat
FROM {schema}.queues AS q WHERE q.name = $1::text FOR UPDATE
