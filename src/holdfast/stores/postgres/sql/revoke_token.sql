UPDATE {schema}.tokens SET revoked_at = coalesce(revoked_at, $1::timestamptz, clock_timestamp())
WHERE id = $2::text
RETURNING true
