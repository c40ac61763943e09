-- The instant, and the transactions that may be writing tasks: whatever they write got its time, or was locked, after
-- they took the table's lock. The instant is read first: who is not among them takes the lock, and the time, later. Who
-- reads or vacuums has other locks.
WITH moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now)
SELECT
    moment.now,
    ARRAY(
        SELECT l.virtualtransaction FROM pg_locks AS l
        WHERE moment.now IS NOT NULL AND l.locktype = 'relation' AND l.relation = $2::text::regclass
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND l.granted AND l.mode IN ('RowExclusiveLock', 'RowShareLock') AND l.pid <> pg_backend_pid()
    ) AS writers
FROM moment
