-- What is left to do for these tasks, from the places given on.
INSERT INTO {schema}.advances (at, task_id, kind, actor, after_id, after_n)
SELECT $1::timestamptz, g.* FROM unnest($2::uuid[], $3::text[], $4::text[], $5::uuid[], $6::bigint[]) AS g
ON CONFLICT (task_id, kind) DO UPDATE
SET at = excluded.at, actor = excluded.actor, after_id = excluded.after_id, after_n = excluded.after_n
