-- Marks the tasks with a key in a queue that have been tried and are to be tried again: from now on they go first.
WITH locked AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.status = 'queued' AND t.queue = $1::text AND t.concurrency_key IS NOT NULL AND NOT t.begun
      AND (t.failures > 0 OR t.attempt > 0 AND t.settled_as IN ('snoozed', 'released'))
    ORDER BY t.id FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks AS t SET begun = true FROM locked WHERE t.id = locked.id
