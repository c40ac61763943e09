SELECT name, cron, timezone, every, jitter, missed, missed_most, task, paused, created_at, last_fired_at, declared_at
FROM holdfast_schedules ORDER BY name
