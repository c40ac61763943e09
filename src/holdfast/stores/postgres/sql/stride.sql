-- Up to $7 tasks without a key among the next $6 due ones of a shelf ($2 to $5); and the last of these $6, where all of
-- them were read and there are more.
WITH found AS MATERIALIZED (
    SELECT near.run_at, near.seq, near.id FROM (
        SELECT t.run_at, t.seq, t.id, t.concurrency_key FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = $2::text AND t.priority = $3::smallint
          AND (t.run_at, t.seq) >= ($4::timestamptz, $5::bigint) AND t.run_at <= $1::timestamptz
        ORDER BY t.run_at, t.seq LIMIT $6::bigint
    ) AS near
    WHERE near.concurrency_key IS NULL
    LIMIT $7::bigint
)
SELECT far.run_at AS far_run_at, far.seq AS far_seq, found.run_at, found.seq, found.id::text AS id
FROM (SELECT count(*) AS n FROM found) AS enough
LEFT JOIN LATERAL (
    SELECT t.run_at, t.seq FROM {schema}.tasks AS t
    WHERE enough.n < $7::bigint AND t.status = 'queued' AND t.queue = $2::text AND t.priority = $3::smallint
      AND (t.run_at, t.seq) >= ($4::timestamptz, $5::bigint) AND t.run_at <= $1::timestamptz
    ORDER BY t.run_at, t.seq OFFSET $6::bigint - 1 LIMIT 1
) AS far ON true
LEFT JOIN found ON true
