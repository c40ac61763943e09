-- How many tasks of each of these keys run under leases that hold.
SELECT json_group_object(given.value, (
    SELECT count(*) FROM holdfast_tasks AS t
    WHERE t.placed AND t.queue = :queue AND t.concurrency_key = given.value AND t.lease_expires_at > :now
))
FROM json_each(:keys) AS given
