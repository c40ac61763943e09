-- Of a key that the base has already the first value is kept.
INSERT INTO holdfast_rows (dataset, base, key, version, value)
SELECT :dataset, :base, value ->> 0, :version, value ->> 1 FROM json_each(:rows) WHERE TRUE
ON CONFLICT DO NOTHING
