-- Also the check that nobody has brought the schema further since this engine opened: then no row is written, and the
-- whole transaction is given up.
INSERT INTO holdfast_counts (queue, status, n)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:deltas)
WHERE (SELECT max(version) FROM holdfast_schema) = :version
ON CONFLICT (queue, status) DO UPDATE SET n = n + excluded.n
