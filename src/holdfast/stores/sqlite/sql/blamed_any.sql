-- Those of these tasks because of which something is canceled.
SELECT json_group_array(given.value) FROM json_each(:ids) AS given
WHERE EXISTS (SELECT 1 FROM holdfast_tasks WHERE canceled_because = given.value AND canceled_because IS NOT NULL)
