DELETE FROM {schema}.outbox WHERE id = ANY ($1::bigint[])
