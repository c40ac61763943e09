-- What a verb leaves to be done; the same again begins anew.
INSERT OR REPLACE INTO holdfast_advances (task, kind, status, actor, child, position)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(:rows)
