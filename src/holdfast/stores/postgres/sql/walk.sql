-- The next $7 keys after $6 that have queued tasks in a queue, each with those of its tasks that may start, or with an
-- empty row; $8 rows at most. Every key is found by one seek.
WITH RECURSIVE k (n, key) AS (
    SELECT 1::bigint, (
        SELECT t.concurrency_key FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = $2::text AND t.concurrency_key > $6::text
        ORDER BY t.concurrency_key LIMIT 1
    )
    UNION ALL
    SELECT k.n + 1, (
        SELECT t.concurrency_key FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = $2::text AND t.concurrency_key > k.key
        ORDER BY t.concurrency_key LIMIT 1
    )
    FROM k WHERE k.key IS NOT NULL AND k.n < $7::bigint
)
SELECT k.key, found.*
FROM k
LEFT JOIN LATERAL (
{include of_key}
) AS found ON true
WHERE k.key IS NOT NULL
LIMIT $8::bigint
