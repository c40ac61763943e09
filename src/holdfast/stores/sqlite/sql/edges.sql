-- The edges that leave these tasks ([parent, child, position]: only those beyond), in the order of submission.
SELECT json_group_array(json_array(parent, child, position, counted, id)) FROM (
    SELECT e.parent, e.child, e.position, e.counted, t.id
    FROM json_each(:parents) AS given
    CROSS JOIN holdfast_edges AS e
        ON e.parent = given.value ->> 0 AND (e.child, e.position) > (given.value ->> 1, given.value ->> 2)
    CROSS JOIN holdfast_tasks AS t ON t.seq = e.child
    LIMIT :limit
)
