-- What is asked for, without what is paused, and `held`: the limited queues among it that have due tasks. Where there
-- are any, nothing is claimed here: they have to take turns first (turn.py), and the others have to be compared with them.
asked AS MATERIALIZED (
    SELECT g.queue, g.priority, g.run_at, g.seq, coalesce(q.limited, false) OR whole.limited AS limited
    FROM unnest($7::text[], $8::smallint[], $9::timestamptz[], $10::bigint[]) AS g (queue, priority, run_at, seq)
    LEFT JOIN {schema}.queues AS q ON q.name = g.queue
    CROSS JOIN (SELECT EXISTS (SELECT FROM {schema}.queues WHERE name = '*' AND limited) AS limited OFFSET 0) AS whole
    WHERE NOT EXISTS (SELECT FROM known) AND q.paused IS NOT TRUE
),
held AS MATERIALIZED (
    SELECT DISTINCT a.queue FROM asked AS a
    WHERE a.limited AND EXISTS (
        SELECT FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = a.queue AND t.priority = a.priority
          AND (t.run_at, t.seq) >= (a.run_at, a.seq) AND t.run_at <= (SELECT moment.now FROM moment)
    )
),
shelf AS MATERIALIZED (
    SELECT a.queue, a.priority, a.run_at, a.seq FROM asked AS a WHERE NOT a.limited AND NOT EXISTS (SELECT FROM held)
),