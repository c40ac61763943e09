-- Of these tasks: the numbers of some that have ended, and the ids of all that exist.
WITH known AS MATERIALIZED (
    SELECT t.seq, t.id, t.status FROM json_each(:ids) AS g CROSS JOIN holdfast_tasks AS t ON t.id = g.value
)
SELECT
    (SELECT json_group_array(seq) FROM (
        SELECT seq FROM known WHERE status IN ('completed', 'failed', 'canceled') LIMIT :limit
    )),
    (SELECT json_group_array(id) FROM known)
