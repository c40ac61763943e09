-- The instant, and the columns of rows.Record for expired attempts, locked. Rows that somebody else is at are left to
-- them: another reaper, or an owner who just comes in time. $3: no attempt can have expired before (see fronts.py).
WITH locked AS MATERIALIZED (
    SELECT
        t.id::text AS id, t.name, t.queue, t.priority, t.run_id, t.max_attempts, t.backoff, t.timeout, t.lease,
        t.attempt, t.claimed_at, t.lease_micros, t.seq, t.parents, t.dependents, t.on_parent_failure, t.fail_fast,
        t.delay_micros, t.last_error, t.status, t.run_at, t.failures, t.claimed_by,
        t.token::text AS token, t.claim_id, t.lease_expires_at, t.settled_token::text AS settled_token, t.settled_as,
        t.settled_status, t.cancel_requested_at, t.canceled_because, t.finished_at, t.pending
    FROM {schema}.tasks AS t
    WHERE t.status = 'running' AND t.lease_expires_at >= $3::timestamptz
      AND t.lease_expires_at <= coalesce($1::timestamptz, now())
    ORDER BY t.lease_expires_at
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
)
SELECT moment.now, locked.*
FROM (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now FROM (SELECT count(*) FROM locked) AS after_locking
) AS moment
LEFT JOIN locked ON true
