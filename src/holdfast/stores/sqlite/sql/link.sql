INSERT INTO holdfast_edges (parent, child, position)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:edges)
