-- submit_one.sql whose commit also tells the channel $19 of itself, if anybody holds the lock that says that he listens
-- ($21, $22); the answer is whether anybody does. Who holds it in another database costs a NOTIFY too many.
{include add_one}
counted AS (
    INSERT INTO {schema}.counts (queue, waiting, queued)
    SELECT queue, (status = 'waiting')::integer, (status = 'queued')::integer FROM added
)
SELECT CASE
    WHEN NOT EXISTS (
        SELECT FROM pg_locks AS l
        WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
          AND l.classid = ($21::bigint & 4294967295)::oid AND l.objid = ($22::bigint & 4294967295)::oid
    ) THEN false
    ELSE (SELECT true FROM pg_notify($19::text, $20::text))
END
