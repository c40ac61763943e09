UPDATE {schema}.tasks AS t SET lease_expires_at = g.until
FROM unnest($1::uuid[], $2::timestamptz[]) AS g (id, until)
WHERE t.id = g.id
