-- How many tasks of a queue run under leases that hold, up to a number.
SELECT count(*) FROM (
    SELECT 1 FROM holdfast_tasks WHERE placed AND queue = :queue AND lease_expires_at > :now LIMIT :most
)
