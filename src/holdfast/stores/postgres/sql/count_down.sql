-- What the ends of these tasks ($1; $2: did they complete?) mean for those that wait for them, each edge once: no more
-- than $5 edges of each task, after the place ($3, $4). Edges belong to who holds the lock on their parent, as the
-- caller does. Buckets are locked in the order of their key, which is that of children's ids, and then updated:
--   1. Two members of one bucket end at the same moment; both have read `open` as 2. 2. One locks the bucket and takes
--   one off; the other waits for it. 3. The first commits. The other's lock and update go to the row as it is now: 1,
--   so it is the last one and takes one off the child.
-- The answer has a row for each edge, and one (without `n`) for each child with the buckets that have become empty.
WITH ended AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::boolean[]) WITH ORDINALITY AS g (id, completed, n)
),
reached AS MATERIALIZED (
    SELECT ended.n, e.tid, e.child, e.position, e.bucket, e.anyway OR ended.completed AS counts, e.counted
    FROM ended
    CROSS JOIN LATERAL (
        SELECT e.ctid AS tid, e.* FROM {schema}.edges AS e
        WHERE e.parent = ended.id AND (e.child, e.position) > ($3::uuid, $4::integer)
        ORDER BY e.child, e.position LIMIT $5::bigint
    ) AS e
),
marked AS (
    UPDATE {schema}.edges AS e SET counted = true
    FROM reached AS r WHERE e.ctid = r.tid AND r.counts AND NOT r.counted
),
taken AS MATERIALIZED (
    SELECT r.child, r.bucket, count(*)::integer AS n
    FROM reached AS r WHERE r.bucket IS NOT NULL AND r.counts AND NOT r.counted GROUP BY r.child, r.bucket
),
locked AS MATERIALIZED (
    SELECT b.child, b.bucket, taken.n
    FROM taken JOIN {schema}.buckets AS b ON b.child = taken.child AND b.bucket = taken.bucket
    ORDER BY b.child, b.bucket FOR UPDATE OF b
),
left_open AS (
    UPDATE {schema}.buckets AS b SET open = b.open - locked.n
    FROM locked WHERE b.child = locked.child AND b.bucket = locked.bucket
    RETURNING b.child, b.open
)
SELECT
    r.n, r.child::text AS child, r.position, NOT r.counts AS cancels,
    (r.bucket IS NULL AND r.counts AND NOT r.counted)::integer AS takes
FROM reached AS r
UNION ALL
SELECT NULL, o.child::text, NULL, false, count(*)::integer FROM left_open AS o WHERE o.open = 0 GROUP BY o.child
