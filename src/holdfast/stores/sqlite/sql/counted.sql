UPDATE holdfast_edges SET counted = 1
FROM json_each(:edges) AS given
WHERE parent = given.value ->> 0 AND child = given.value ->> 1 AND position = given.value ->> 2
