-- Every note of a task that came late; there are few, and they are deleted after an hour.
SELECT id, queue, priority, run_at FROM {schema}.late
