-- Events of one kind and actor that say only what the record says.
INSERT INTO holdfast_events (task, at, kind, actor, attempt)
SELECT t.seq, :now, :kind, :actor, t.attempt
FROM json_each(:tasks) AS given CROSS JOIN holdfast_tasks AS t ON t.seq = given.value
