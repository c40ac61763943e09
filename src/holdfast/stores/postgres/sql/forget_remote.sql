-- Workers behind a dispatcher that were not seen for long. Nothing shows that they are gone: their leases are left alone.
DELETE FROM {schema}.workers
WHERE remote AND seen_at < coalesce($1::timestamptz, clock_timestamp()) - $2::bigint * interval '1 microsecond'
