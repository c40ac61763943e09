-- The instant, and for each of these queues ('*': the whole store): how many tasks run, counted up to $3, and which of
-- those that seem to run have expired. A lease that is over frees its place only if nobody is at it; from then on it is
-- held here:
--   1. A heartbeat finds the lease valid, by a hair. 2. The lease's time is over, and a claim counts. 3. The heartbeat
--   commits. Had the claim taken the place for free, there would be one too many.
WITH moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
given AS MATERIALIZED (SELECT g.name, g.most FROM unnest($2::text[], $3::bigint[]) AS g (name, most)),
of_queue AS MATERIALIZED (
    SELECT given.name, over.id
    FROM given CROSS JOIN LATERAL (
        SELECT t.id FROM {schema}.tasks AS t
        WHERE given.name <> '*' AND t.begun AND t.status = 'running' AND t.queue = given.name
          AND t.lease_expires_at <= (SELECT moment.now FROM moment)
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS over
),
of_all AS MATERIALIZED (
    SELECT over.id FROM given CROSS JOIN LATERAL (
        SELECT t.id FROM {schema}.tasks AS t
        WHERE given.name = '*' AND t.status = 'running' AND t.lease_expires_at <= (SELECT moment.now FROM moment)
        LIMIT 1000 FOR UPDATE SKIP LOCKED
    ) AS over
)
SELECT
    moment.now, given.name, expired.ids::text[] AS expired,
    CASE WHEN given.name = '*' THEN (
        SELECT count(*) FROM (
            SELECT FROM {schema}.tasks AS t WHERE t.status = 'running' LIMIT given.most + cardinality(expired.ids)
        ) AS few
    ) ELSE (
        SELECT count(*) FROM (
            SELECT FROM {schema}.tasks AS t WHERE t.begun AND t.status = 'running' AND t.queue = given.name
            LIMIT given.most + cardinality(expired.ids)
        ) AS few
    ) END - cardinality(expired.ids) AS running
FROM moment CROSS JOIN given
CROSS JOIN LATERAL (
    SELECT CASE WHEN given.name = '*' THEN ARRAY(SELECT of_all.id FROM of_all)
        ELSE ARRAY(SELECT of_queue.id FROM of_queue WHERE of_queue.name = given.name) END AS ids
) AS expired
