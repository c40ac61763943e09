INSERT INTO holdfast_events (task, at, kind, actor, attempt, data, task_id, run_id)
SELECT value ->> 0, :now, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
FROM json_each(:events)
