-- Those of these tasks that nobody else is at, locked.
SELECT t.id::text AS id FROM {schema}.tasks AS t WHERE t.id = ANY ($1::uuid[]) ORDER BY t.id FOR UPDATE SKIP LOCKED
