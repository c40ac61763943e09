-- The same as turn.sql for the queue of one task.
SELECT
    q.name, q.max_running, q.rate_count, q.rate_micros, q.burst, q.max_running_per_key, q.rate_tat, q.changed_at
FROM {schema}.queues AS q
WHERE q.limited AND q.name = ANY (ARRAY['*', (SELECT t.queue FROM {schema}.tasks AS t WHERE t.id = $1::uuid)])
ORDER BY q.name <> '*', q.name
FOR UPDATE OF q
