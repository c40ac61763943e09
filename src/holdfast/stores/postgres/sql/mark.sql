-- Marks what runs in these queues and was claimed by somebody who did not know of their limits ('*': in all queues).
WITH locked AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.status = 'running' AND NOT t.begun AND (t.queue = ANY ($1::text[]) OR '*' = ANY ($1::text[]))
    ORDER BY t.id FOR UPDATE
)
UPDATE {schema}.tasks AS t SET begun = true FROM locked WHERE t.id = locked.id
