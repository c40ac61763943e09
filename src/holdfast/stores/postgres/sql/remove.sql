-- Edges go with the one who waits: as long as that exists it knows its parents.
WITH
told AS (DELETE FROM {schema}.events WHERE task_id = ANY ($1::uuid[]) AND kind <> 'task.deleted'),
waited AS (DELETE FROM {schema}.edges WHERE child = ANY ($1::uuid[])),
counted AS (DELETE FROM {schema}.buckets WHERE child = ANY ($1::uuid[])),
left_over AS (DELETE FROM {schema}.advances WHERE task_id = ANY ($1::uuid[])),
unpinned AS (DELETE FROM {schema}.pins WHERE task_id = ANY ($1::uuid[])),
stepped AS (DELETE FROM {schema}.steps WHERE task_id = ANY ($1::uuid[]))
DELETE FROM {schema}.tasks WHERE id = ANY ($1::uuid[])
