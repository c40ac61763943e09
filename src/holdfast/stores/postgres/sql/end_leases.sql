-- Ends the leases of a worker that is gone; reaping follows. What an open transaction is about to complete is left.
WITH locked AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t
    WHERE t.status = 'running' AND t.claimed_by = $2::text ORDER BY t.id FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.tasks AS t
SET lease_expires_at = least(t.lease_expires_at, coalesce($1::timestamptz, clock_timestamp()))
FROM locked WHERE t.id = locked.id
