-- A task for which something is left to do and at which nobody else is, locked. What exactly is to be read in a later
-- statement: who was at it before may have come further since this one began.
SELECT a.task_id::text AS id FROM {schema}.advances AS a
JOIN {schema}.tasks AS t ON t.id = a.task_id
ORDER BY a.at LIMIT 1 FOR UPDATE OF t SKIP LOCKED
