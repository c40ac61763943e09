-- Rows for the sinks $2 that are due, oldest first, $3 at most, held as $4 for $5 microseconds. Of each sink $6 are looked
-- at; the answer tells how many that were, for some of them are not taken:
--   Wake-ups that a later one has replaced, dead ones too, or whose task is not queued, are dropped.
--   Events that have others of their line before them are put behind: the lock of one of those keeps it from going before
--   this is committed, and then whoever takes it out finds the rows behind it. Where somebody else holds the locks of all
--   of them, the row is left as it is.
-- The first and the next of a line are asked for in the order of the index: by numbers alone the planner would, where it
-- has seen one long line, walk through the whole table. A row that changed since this statement began is locked in its new
-- version, which the updates do not see: it is left.
WITH moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
locked AS MATERIALIZED (
    SELECT due.*
    FROM unnest($2::text[]) AS s (name)
    CROSS JOIN LATERAL (
        SELECT o.ctid AS tid, o.id, o.sink, o.task_id, o.effect, o.due_at
        FROM {schema}.outbox AS o
        WHERE o.sink = s.name AND o.free_at <= (SELECT moment.now FROM moment) AND o.free_at IS NOT NULL
        ORDER BY o.free_at, o.id LIMIT $6::bigint
        FOR UPDATE SKIP LOCKED
    ) AS due
),
judged AS MATERIALIZED (
    SELECT
        o.*,
        o.effect = 'route_event' AND (
            SELECT first.id FROM {schema}.outbox AS first
            WHERE (first.sink, first.task_id, first.id) >= (o.sink, o.task_id, 0) AND first.state = 'pending'
              AND first.effect = o.effect
            ORDER BY first.sink, first.task_id, first.id LIMIT 1
        ) < o.id AS behind,
        o.effect = 'enqueue_task' AND (
            (SELECT t.status FROM {schema}.tasks AS t WHERE t.id = o.task_id) IS DISTINCT FROM 'queued'
            OR {include replaced}
        ) AS needless
    FROM locked AS o
),
guarded AS MATERIALIZED (
    SELECT j.tid
    FROM judged AS j
    CROSS JOIN LATERAL (
        SELECT o.id FROM {schema}.outbox AS o
        WHERE (o.sink, o.task_id, o.id) >= (j.sink, j.task_id, 0) AND (o.sink, o.task_id, o.id) < (j.sink, j.task_id, j.id)
          AND o.state = 'pending' AND o.effect = j.effect
        ORDER BY o.sink, o.task_id, o.id LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS ahead
    WHERE j.behind
),
given_up AS MATERIALIZED (
    SELECT dead.tid
    FROM judged AS j
    CROSS JOIN LATERAL (
        SELECT o.ctid AS tid FROM {schema}.outbox AS o
        WHERE (o.sink, o.task_id, o.id) >= (j.sink, j.task_id, 0) AND (o.sink, o.task_id, o.id) < (j.sink, j.task_id, j.id)
          AND o.state = 'dead'
        ORDER BY o.sink, o.task_id, o.id LIMIT 10
        FOR UPDATE SKIP LOCKED
    ) AS dead
    WHERE j.effect = 'enqueue_task'
),
put_behind AS (UPDATE {schema}.outbox AS o SET free_at = NULL FROM guarded AS g WHERE o.ctid = g.tid),
dropped AS (DELETE FROM {schema}.outbox AS o USING judged AS j WHERE o.ctid = j.tid AND j.needless),
replaced AS (DELETE FROM {schema}.outbox AS o USING given_up AS g WHERE o.ctid = g.tid),
chosen AS MATERIALIZED (
    SELECT j.tid FROM judged AS j
    WHERE NOT j.behind AND NOT j.needless ORDER BY j.due_at, j.id LIMIT $3::bigint
),
taken AS (
    UPDATE {schema}.outbox AS o
    SET hold = $4::text, free_at = moment.now + $5::bigint * interval '1 microsecond'
    FROM chosen CROSS JOIN moment WHERE o.ctid = chosen.tid
    RETURNING o.*
)
SELECT
    looked.n AS looked, o.event_id AS id, o.created_at AS at, o.task_id::text AS task_id, o.run_id, o.kind, o.actor,
    o.attempt, o.data, o.name, o.queue, o.parents, o.max_attempts, o.id AS row_id, o.sink, o.effect, o.state, o.due_at,
    o.tries, o.last_error, o.told
FROM (SELECT count(*) AS n FROM locked) AS looked
LEFT JOIN taken AS o ON true
ORDER BY o.due_at, o.id
