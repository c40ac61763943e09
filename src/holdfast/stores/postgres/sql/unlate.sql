DELETE FROM {schema}.late WHERE at <= clock_timestamp() - interval '1 hour'
