-- Is there a worker of this name under another lock, which nobody holds any more? Shared: two that look do not take
-- each other for the worker.
SELECT true FROM {schema}.workers
WHERE id = $1::text AND nonce IS DISTINCT FROM $2::bigint AND pg_try_advisory_xact_lock_shared(nonce)
