UPDATE holdfast_schedules SET last_fired_at = :upto
WHERE name = :schedule AND last_fired_at = :last_fired_at AND NOT paused
