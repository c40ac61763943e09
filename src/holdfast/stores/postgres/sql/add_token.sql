INSERT INTO {schema}.tokens (id, name, scopes, digest, created_at, expires_at)
SELECT $2::text, $3::text, $4::text[], $5::text, moment.now, moment.now + $6::bigint * interval '1 microsecond'
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now OFFSET 0) AS moment
ON CONFLICT (id) DO NOTHING
