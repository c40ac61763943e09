SELECT t.concurrency_key FROM {schema}.tasks AS t WHERE t.id = $1::uuid
