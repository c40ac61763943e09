-- Workers whose lock is free. Shared: two that look do not take each other for the worker.
SELECT id, nonce FROM {schema}.workers
WHERE id <> ALL ($1::text[]) AND pg_try_advisory_xact_lock_shared(nonce)
ORDER BY seq
