INSERT INTO holdfast_pins (dataset, version, task)
SELECT value ->> 0, coalesce(value ->> 1, 0), value ->> 2 FROM json_each(:pins)
