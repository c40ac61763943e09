INSERT INTO holdfast_events (task, at, kind, actor, attempt)
SELECT seq, :now, 'task.enqueued', 'client', 0 FROM holdfast_tasks WHERE seq BETWEEN :first AND :last
