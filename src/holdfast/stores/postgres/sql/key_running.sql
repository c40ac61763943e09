-- How many tasks of a key ($2) of a queue run, but for those ($3) whose leases are over.
SELECT count(*) FROM {schema}.tasks AS t
WHERE t.begun AND t.status = 'running' AND t.queue = $1::text AND t.concurrency_key = $2::text
  AND t.id <> ALL ($3::uuid[])
