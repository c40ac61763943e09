UPDATE {schema}.queues
SET limited = $3::boolean, max_running = $4::integer, rate_count = $5::integer, rate_micros = $6::bigint,
    burst = $7::integer, max_running_per_key = $8::integer, rate_tat = $9::bigint, changed_at = coalesce($1::timestamptz, clock_timestamp())
WHERE name = $2::text
