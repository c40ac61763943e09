INSERT INTO holdfast_schedules (
    name, cron, timezone, every, jitter, missed, missed_most, task, created_at, last_fired_at, declared_at
)
VALUES (:schedule, :cron, :timezone, :every, :jitter, :missed, :missed_most, :task, :now, :now, :declared_at)
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, every = excluded.every, jitter = excluded.jitter,
    missed = excluded.missed, missed_most = excluded.missed_most, task = excluded.task,
    declared_at = excluded.declared_at,
    last_fired_at = CASE
        WHEN (cron, timezone, every) IS (excluded.cron, excluded.timezone, excluded.every) THEN last_fired_at
        ELSE max(last_fired_at, excluded.last_fired_at)
    END
RETURNING
    name, cron, timezone, every, jitter, missed, missed_most, task, paused, created_at, last_fired_at, declared_at
