-- Tell the channel $3, if anybody holds the lock ($1, $2) that says so. To take it alone fails exactly then (or beside
-- another who tells, which costs no more than a NOTIFY too many), and asks for no more than one entry of the lock
-- table. A NOTIFY makes every commit that has one wait for the others: so not for the disk as well.
SELECT CASE
    WHEN pg_try_advisory_xact_lock($1::integer, $2::integer) THEN false
    ELSE (
        SELECT true FROM set_config('synchronous_commit', 'off', true), pg_notify($3::text, $4::text)
    )
END
