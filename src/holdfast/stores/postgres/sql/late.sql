INSERT INTO {schema}.late (queue, priority, run_at)
SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[])
