-- The clock is read again where the row was there: it may have been waited for.
INSERT INTO {schema}.schedules AS s (
    name, cron, timezone, every, jitter, missed, missed_most, task, created_at, last_fired_at, declared_at
)
SELECT
    $2::text, $3::text, $4::text, $5::double precision, $6::double precision, $7::text, $8::integer, $9::text,
    moment.now, moment.now, CASE WHEN $10::boolean THEN moment.now END
FROM (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now) AS moment
ON CONFLICT (name) DO UPDATE SET
    cron = excluded.cron, timezone = excluded.timezone, every = excluded.every, jitter = excluded.jitter,
    missed = excluded.missed, missed_most = excluded.missed_most, task = excluded.task,
    declared_at = CASE WHEN $10::boolean THEN coalesce($1::timestamptz, clock_timestamp()) END,
    last_fired_at = CASE
        WHEN (s.cron, s.timezone, s.every) IS NOT DISTINCT FROM (excluded.cron, excluded.timezone, excluded.every)
            THEN s.last_fired_at
        ELSE greatest(s.last_fired_at, coalesce($1::timestamptz, clock_timestamp()))
    END
RETURNING
    s.name, s.cron, s.timezone, s.every, s.jitter, s.missed, s.missed_most, s.task, s.paused, s.created_at,
    s.last_fired_at, s.declared_at
