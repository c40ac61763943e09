SELECT {schema}.lock_datasets($1::text[], $2::timestamptz)
