WITH gone AS (DELETE FROM {schema}.events WHERE task_id = ANY ($1::uuid[]) AND kind <> 'task.deleted')
DELETE FROM {schema}.tasks WHERE id = ANY ($1::uuid[])
