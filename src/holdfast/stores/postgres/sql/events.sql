INSERT INTO {schema}.events (at, task, kind, actor, attempt, data, task_id, run_id)
SELECT $1::timestamptz, g.task, g.kind, g.actor, g.attempt, g.data, g.task_id, g.run_id
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::uuid[], $8::text[])
    WITH ORDINALITY AS g (task, kind, actor, attempt, data, task_id, run_id, n)
ORDER BY g.n
