UPDATE {schema}.schedules SET
    paused = $3::boolean,
    last_fired_at = CASE
        WHEN paused AND NOT $3::boolean
            THEN greatest(last_fired_at, coalesce($1::timestamptz, clock_timestamp()))
        ELSE last_fired_at
    END
WHERE name = $2::text
RETURNING name
