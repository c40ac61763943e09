DELETE FROM {schema}.workers
WHERE id = $1::text AND nonce = $2::bigint AND pg_try_advisory_xact_lock_shared(nonce)
RETURNING true
