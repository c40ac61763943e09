-- Runs, newest first by their first task; $1: only what is older. Every run is met once, whatever it holds.
WITH RECURSIVE first (run_id, id) AS (
    (
        SELECT t.run_id, t.id FROM {schema}.tasks AS t
        WHERE t.run_id IS NOT NULL ORDER BY t.run_id, t.id LIMIT 1
    )
    UNION ALL
    SELECT next.run_id, next.id
    FROM first
    CROSS JOIN LATERAL (
        SELECT t.run_id, t.id FROM {schema}.tasks AS t
        WHERE t.run_id > first.run_id AND t.run_id IS NOT NULL ORDER BY t.run_id, t.id LIMIT 1
    ) AS next
)
SELECT first.run_id FROM first
WHERE $1::uuid IS NULL OR first.id < $1::uuid
ORDER BY first.id DESC LIMIT $2::bigint
