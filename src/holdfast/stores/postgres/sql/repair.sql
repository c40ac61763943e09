-- Leases that ran out between two instants in which the store was away hold for one length more (see outage.py). What
-- ran out before the last event was written ran out while the store was there.
WITH away AS MATERIALIZED (
    SELECT
        greatest($2::timestamptz, (SELECT at FROM {schema}.events ORDER BY id DESC LIMIT 1)) AS since,
        coalesce($1::timestamptz, clock_timestamp()) AS now
),
locked AS MATERIALIZED (
    SELECT t.id FROM {schema}.tasks AS t, away
    WHERE t.status = 'running' AND t.lease_expires_at > away.since
      AND t.lease_expires_at <= least($3::timestamptz, away.now)
    ORDER BY t.id FOR UPDATE OF t
)
UPDATE {schema}.tasks AS t SET lease_expires_at = away.now + t.lease_micros * interval '1 microsecond'
FROM locked, away WHERE t.id = locked.id
