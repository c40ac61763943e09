SELECT
    s.name, s.cron, s.timezone, s.every, s.jitter, s.missed, s.missed_most, s.task, s.paused, s.created_at,
    s.last_fired_at, s.declared_at
FROM {schema}.schedules AS s
ORDER BY s.name
