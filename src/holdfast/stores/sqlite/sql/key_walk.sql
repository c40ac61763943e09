-- The next keys of a queue that have queued tasks. One seek per key.
WITH RECURSIVE walk (key, n) AS (
    SELECT (
        SELECT min(t.concurrency_key) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = :queue AND t.concurrency_key > :after AND t.concurrency_key IS NOT NULL
    ), 1
    UNION ALL
    SELECT (
        SELECT min(t.concurrency_key) FROM holdfast_tasks AS t
        WHERE t.status = 'queued' AND t.queue = :queue AND t.concurrency_key > walk.key
          AND t.concurrency_key IS NOT NULL
    ), walk.n + 1
    FROM walk WHERE walk.key IS NOT NULL AND walk.n < :limit
)
SELECT json_group_array(key) FROM walk WHERE key IS NOT NULL
