-- Deletes some rows of a loose base, and its note once that was all; how many.
WITH one AS MATERIALIZED (
    SELECT b.dataset, b.base FROM {schema}.loose_bases AS b ORDER BY b.dataset, b.base LIMIT 1 FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM {schema}.dataset_rows WHERE ctid = ANY (ARRAY(
        SELECT r.ctid FROM one JOIN {schema}.dataset_rows AS r ON r.dataset = one.dataset AND r.base = one.base
        LIMIT $1::bigint
    ))
    RETURNING true
),
done AS (
    DELETE FROM {schema}.loose_bases AS b USING one
    WHERE b.dataset = one.dataset AND b.base = one.base AND (SELECT count(*) FROM gone) < $1::bigint
)
SELECT count(*) FROM gone
