INSERT INTO holdfast_versions (dataset, version, base, mode, rows, added, task_id, created_at)
VALUES (:dataset, :version, :base, :mode, :rows, :added, :task_id, :now)
