DELETE FROM {schema}.schedules WHERE name = $1::text RETURNING name
