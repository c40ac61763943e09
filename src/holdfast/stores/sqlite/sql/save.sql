-- Changed records: their seq, then the columns of rows.Record from `status` on.
UPDATE holdfast_tasks
SET status = given.value ->> 1, run_at = given.value ->> 2, failures = given.value ->> 3,
    claimed_by = given.value ->> 4, token = given.value ->> 5, claim_id = given.value ->> 6,
    lease_expires_at = given.value ->> 7, settled_token = given.value ->> 8, settled_as = given.value ->> 9,
    settled_status = given.value ->> 10, cancel_requested_at = given.value ->> 11,
    canceled_because = given.value ->> 12, finished_at = given.value ->> 13, pending = given.value ->> 14,
    begun = given.value ->> 15, placed = given.value ->> 16, result = given.value ->> 17,
    last_error = coalesce(given.value ->> 18, last_error), last_error_at = coalesce(given.value ->> 19, last_error_at)
FROM json_each(:records) AS given
WHERE seq = given.value ->> 0
