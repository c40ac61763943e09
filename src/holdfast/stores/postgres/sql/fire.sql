-- Of two who fire at once the second waits for the row, finds that it has moved on, and changes nothing.
UPDATE {schema}.schedules SET last_fired_at = $3::timestamptz
WHERE name = $1::text AND last_fired_at = $2::timestamptz AND NOT paused
RETURNING name
