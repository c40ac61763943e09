UPDATE holdfast_schedules SET
    paused = :paused,
    last_fired_at = CASE WHEN paused AND NOT :paused THEN max(last_fired_at, :now) ELSE last_fired_at END
WHERE name = :schedule
