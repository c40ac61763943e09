-- Rows are locked in one order everywhere, by id; the clock that judges the leases is read once they are held. A row that
-- changed since this statement began is locked in its new version, which the update does not see: it is left to the long
-- way (settle.py), and so is one for which more than $7 others wait. $5 is empty where every result is null.
WITH locked AS MATERIALIZED (
    SELECT
        t.ctid AS tid, t.claimed_by, t.lease_expires_at, g.result, g.n,
        t.status = 'running' AND t.attempt = g.attempt AND t.token = g.token AS current
    FROM unnest($2::text::uuid[], $3::text::integer[], $4::text::uuid[], $5::text[])
        WITH ORDINALITY AS g (id, attempt, token, result, n)
    JOIN {schema}.tasks AS t ON t.id = g.id
    WHERE t.dependents <= $7::integer
    ORDER BY t.id
    FOR UPDATE OF t
),
moment AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now FROM (SELECT count(*) FROM locked) AS after_locking
),
done AS (
    UPDATE {schema}.tasks AS t
    SET status = 'completed', result = coalesce(locked.result, 'null'), finished_at = moment.now,
        settled_token = t.token, settled_as = 'completed', settled_status = 'completed',
        token = NULL, claim_id = NULL, claimed_by = NULL, lease_expires_at = NULL, canceled_because = NULL
    FROM locked CROSS JOIN moment
    WHERE t.ctid = locked.tid AND locked.current AND locked.lease_expires_at > moment.now
    RETURNING t.id, t.queue, t.attempt, t.finished_at, t.dependents, t.begun, locked.claimed_by, locked.n
),
