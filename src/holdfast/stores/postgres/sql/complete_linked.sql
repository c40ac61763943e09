-- complete.sql with what it means for those that wait (count_down.sql): all in one statement, since a completion cancels
-- nobody. Children are locked in the order of their ids and updated as they are then: of two who take the last ones off
-- at the same moment the second finds nought. Their time is read after the table's lock was taken, as fronts.py wants it.
{include done}reached AS MATERIALIZED (
    SELECT e.ctid AS tid, e.child, e.bucket, done.claimed_by, done.n
    FROM done JOIN {schema}.edges AS e ON e.parent = done.id
    WHERE done.dependents > 0 AND NOT e.counted
),
marked AS (UPDATE {schema}.edges AS e SET counted = true FROM reached AS r WHERE e.ctid = r.tid),
taken AS MATERIALIZED (
    SELECT r.child, r.bucket, count(*)::integer AS n, (array_agg(r.claimed_by ORDER BY r.n DESC))[1] AS actor
    FROM reached AS r WHERE r.bucket IS NOT NULL GROUP BY r.child, r.bucket
),
dealt AS MATERIALIZED (
    SELECT b.child, b.bucket, taken.n, taken.actor
    FROM taken JOIN {schema}.buckets AS b ON b.child = taken.child AND b.bucket = taken.bucket
    ORDER BY b.child, b.bucket FOR UPDATE OF b
),
left_open AS (
    UPDATE {schema}.buckets AS b SET open = b.open - dealt.n
    FROM dealt WHERE b.child = dealt.child AND b.bucket = dealt.bucket
    RETURNING b.child, b.open, dealt.actor
),
less AS MATERIALIZED (
    SELECT one.child, count(*)::integer AS n, (array_agg(one.actor ORDER BY one.n DESC))[1] AS actor
    FROM (
        SELECT r.child, r.claimed_by AS actor, r.n FROM reached AS r WHERE r.bucket IS NULL
        UNION ALL
        SELECT o.child, o.actor, 0 FROM left_open AS o WHERE o.open = 0
    ) AS one
    GROUP BY one.child
),
waiting AS MATERIALIZED (
    SELECT
        t.id, less.actor, t.pending - less.n AS pending, t.status = 'waiting' AND t.pending = less.n AS ready,
        t.run_at, t.delay_micros
    FROM less JOIN {schema}.tasks AS t ON t.id = less.child
    ORDER BY t.id FOR UPDATE OF t
),
advanced AS (
    UPDATE {schema}.tasks AS t
    SET pending = w.pending, status = CASE WHEN w.ready THEN 'queued' ELSE t.status END,
        run_at = CASE
            WHEN w.ready THEN greatest(w.run_at, moment.now + w.delay_micros * interval '1 microsecond')
            ELSE t.run_at
        END
    FROM waiting AS w CROSS JOIN moment WHERE t.id = w.id
    RETURNING t.id, t.queue, t.priority, t.run_at, w.ready, w.actor, moment.now AS at
),
noted AS (
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    SELECT id, finished_at, 'task.completed', claimed_by, attempt FROM done
    UNION ALL
    SELECT id, at, 'task.ready', actor, 0 FROM advanced WHERE ready
),
counted AS (
    INSERT INTO {schema}.counts (queue, waiting, queued, running, completed)
    SELECT queue, 0, 0, -count(*), count(*) FROM done GROUP BY queue
    UNION ALL
    SELECT queue, -count(*), count(*), 0, 0 FROM advanced WHERE ready GROUP BY queue
)
SELECT
    CASE WHEN count(*) < $6::bigint THEN coalesce(array_agg(id::text), '{}') END AS recorded,
    bool_or(begun) AS freed,
    coalesce(bool_or(dependents > 0), false) AS linked,
    ARRAY(SELECT a.queue FROM advanced AS a WHERE a.ready ORDER BY a.id) AS queues,
    ARRAY(SELECT a.priority FROM advanced AS a WHERE a.ready ORDER BY a.id) AS priorities,
    ARRAY(SELECT a.run_at FROM advanced AS a WHERE a.ready ORDER BY a.id) AS run_ats
FROM done
