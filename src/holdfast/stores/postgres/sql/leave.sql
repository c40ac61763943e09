-- Of a worker that shows no more than its name ($2) only the entry of a remote one is forgotten.
DELETE FROM {schema}.workers WHERE id = $1::text AND (remote OR NOT $2::boolean)
