UPDATE {schema}.tasks AS t SET lease_expires_at = g.until
FROM unnest($1::bigint[], $2::timestamptz[]) AS g (seq, until)
WHERE t.seq = g.seq
