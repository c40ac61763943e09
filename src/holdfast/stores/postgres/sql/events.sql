INSERT INTO {schema}.events (at, task_id, kind, actor, attempt, data, run_id)
SELECT $1::timestamptz, g.task_id, g.kind, g.actor, g.attempt, g.data, g.run_id
FROM unnest($2::uuid[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[])
    WITH ORDINALITY AS g (task_id, kind, actor, attempt, data, run_id, n)
ORDER BY g.n
