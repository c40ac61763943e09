-- The last event, and then the transactions that may be writing events.
WITH seen AS MATERIALIZED (SELECT coalesce(max(e.id), 0) AS last FROM {schema}.events AS e)
SELECT
    seen.last,
    ARRAY(
        SELECT l.virtualtransaction FROM pg_locks AS l
        WHERE seen.last IS NOT NULL AND l.locktype = 'relation' AND l.relation = $1::text::regclass
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND l.granted AND l.mode = 'RowExclusiveLock' AND l.pid <> pg_backend_pid()
    ) AS writers
FROM seen
