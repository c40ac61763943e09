UPDATE holdfast_edges AS e SET counted = 1
FROM json_each(:edges) AS given
WHERE e.parent = given.value ->> 0 AND e.child = given.value ->> 1 AND e.position = given.value ->> 2
