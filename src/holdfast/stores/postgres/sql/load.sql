-- The instant, and the columns of rows.Record for these ids, locked. The clock is read once they are held.
WITH locked AS MATERIALIZED (
    SELECT
        t.id::text AS id, t.name, t.queue, t.priority, t.run_id, t.max_attempts, t.backoff, t.timeout, t.lease,
        t.attempt, t.claimed_at, t.lease_micros, t.seq, t.parents, t.dependents, t.on_parent_failure, t.fail_fast,
        t.delay_micros, t.last_error, t.status, t.run_at, t.failures, t.claimed_by,
        t.token::text AS token, t.claim_id, t.lease_expires_at, t.settled_token::text AS settled_token, t.settled_as,
        t.settled_status, t.cancel_requested_at, t.canceled_because, t.finished_at, t.pending
    FROM {schema}.tasks AS t
    WHERE t.id = ANY ($2::uuid[])
    ORDER BY t.id
    FOR UPDATE
)
SELECT moment.now, locked.*
FROM (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now FROM (SELECT count(*) FROM locked) AS after_locking
) AS moment
LEFT JOIN locked ON true
