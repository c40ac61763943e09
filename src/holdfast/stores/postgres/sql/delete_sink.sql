DELETE FROM {schema}.sinks WHERE name = $1::text RETURNING true
