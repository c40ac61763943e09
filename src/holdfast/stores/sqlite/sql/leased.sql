-- The same for the whole store.
SELECT count(*) FROM (SELECT 1 FROM holdfast_tasks WHERE status = 'running' AND lease_expires_at > :now LIMIT :most)
