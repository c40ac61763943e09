-- The first lease that ends in this span.
SELECT t.lease_expires_at FROM {schema}.tasks AS t
WHERE t.status = 'running' AND t.lease_expires_at >= $1::timestamptz
  AND t.lease_expires_at <= $2::timestamptz
ORDER BY t.lease_expires_at LIMIT 1
