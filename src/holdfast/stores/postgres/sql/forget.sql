-- A claim of which nothing is left: if it is made again it is a new one. Of two that do so, only one is granted tasks.
DELETE FROM {schema}.claims AS c
WHERE c.claim_id = $1::text AND NOT EXISTS (
    SELECT FROM unnest(c.tasks) AS g (id)
    JOIN {schema}.tasks AS t ON t.id = g.id
    WHERE t.status = 'running' AND t.claim_id = $1::text
)
