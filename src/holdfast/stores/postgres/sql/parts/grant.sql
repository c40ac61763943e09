-- The rows of `picked` become leases, with their events and counts; and when the next task of `asked` falls due.
numbered AS MATERIALIZED (SELECT p.tid, p.begun, row_number() OVER () AS n FROM picked AS p),
-- The clock is read once more, now that the rows are held: a lease is never shorter than it says.
start AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, clock_timestamp()) AS now, count(*) AS n FROM picked
),
drawn AS MATERIALIZED (SELECT $6::text::uuid[] AS tokens),
claimed AS (
    UPDATE {schema}.tasks AS t
    SET status = 'running', attempt = t.attempt + 1, token = drawn.tokens[p.n], claim_id = $2::text,
        claimed_by = $3::text, claimed_at = start.now, started_at = coalesce(t.started_at, start.now),
        begun = t.begun OR p.begun,
        lease_micros = coalesce(round(t.lease * 1000000)::bigint, $5::bigint),
        lease_expires_at =
            start.now + coalesce(round(t.lease * 1000000)::bigint, $5::bigint) * interval '1 microsecond'
    FROM numbered AS p CROSS JOIN start CROSS JOIN drawn
    WHERE t.ctid = p.tid
    RETURNING
        t.id, t.seq, t.attempt, p.n, t.lease_micros, t.name, t.queue, t.payload, t.priority,
        t.failures, t.max_attempts, t.timeout, t.run_id, t.meta, t.created_at, t.claimed_at, t.run_at
),
granted AS (
    INSERT INTO {schema}.claims (claim_id, at, tasks)
    SELECT $2::text, start.now, ARRAY(SELECT claimed.id FROM claimed) FROM start WHERE start.n > 0
),
noted AS (
    INSERT INTO {schema}.events (task_id, at, kind, actor, attempt)
    SELECT id, claimed_at, 'task.running', $3::text, attempt FROM claimed
),
counted AS (
    INSERT INTO {schema}.counts (queue, queued, running)
    SELECT queue, -count(*), count(*) FROM claimed GROUP BY queue
)
SELECT
    -- The next that falls due; looked for only where fewer were claimed than asked for.
    CASE WHEN (SELECT start.n FROM start) < $4::bigint THEN (
        SELECT min(soon.run_at)
        FROM asked
        CROSS JOIN LATERAL (
            SELECT t.run_at FROM {schema}.tasks AS t
            WHERE t.status = 'queued' AND t.queue = asked.queue AND t.priority = asked.priority
              AND (t.run_at, t.seq) >= (asked.run_at, asked.seq) AND t.run_at > (SELECT moment.now FROM moment)
            ORDER BY t.run_at LIMIT 1
        ) AS soon
    ) END AS next_due_at,
    EXISTS (SELECT FROM known) AS known,
    nullif(ARRAY(SELECT held.queue FROM held), '{}') AS held,
    c.id::text AS id, c.attempt, c.n, c.lease_micros, c.name, c.queue, c.payload, c.priority, c.failures, c.max_attempts,
    c.timeout, c.run_id, c.meta, c.created_at,
    -- Instants are dear to read for the client: the one that all rows share stands in one of them, and a run_at that is
    -- created_at is left out.
    CASE WHEN c.n = (SELECT min(claimed.n) FROM claimed) THEN c.claimed_at END AS claimed_at,
    nullif(c.run_at, c.created_at) AS run_at, c.seq
FROM (SELECT) AS always
LEFT JOIN claimed AS c ON true
ORDER BY c.priority DESC, c.run_at, c.seq
