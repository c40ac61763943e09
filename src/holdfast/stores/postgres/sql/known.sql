-- Tasks with one of these ids or idempotency keys, as they were submitted.
SELECT
    t.id::text AS id, t.name, t.queue, t.payload, t.priority, t.max_attempts, t.backoff, t.timeout, t.lease,
    t.idempotency_key, t.concurrency_key, t.run_id, t.on_parent_failure, t.fail_fast, t.meta, t.inputs,
    {include parents}
FROM {schema}.tasks AS t
WHERE t.id IN (
    SELECT k.id FROM {schema}.tasks AS k WHERE k.id = ANY ($1::uuid[])
    UNION ALL
    SELECT k.id FROM {schema}.tasks AS k
    WHERE k.idempotency_key IS NOT NULL AND k.idempotency_key = ANY ($2::text[])
)
