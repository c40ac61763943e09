-- What a step gave; the recorded one, if it is known already. The task is locked: nobody else records one meanwhile.
WITH known AS MATERIALIZED (
    SELECT s.name, s.result, s.at FROM {schema}.steps AS s WHERE s.task_id = $1::uuid AND s.name = $3::text
),
recorded AS (
    INSERT INTO {schema}.steps (task_id, at, name, result)
    SELECT $1::uuid, $2::timestamptz, $3::text, $4::text WHERE NOT EXISTS (SELECT FROM known)
    RETURNING name, result, at
)
SELECT name, result, at FROM known UNION ALL SELECT name, result, at FROM recorded
