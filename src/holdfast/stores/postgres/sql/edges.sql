-- Who waits for whom among tasks that this transaction submits, and in which buckets their parents are counted.
WITH dealt AS (
    INSERT INTO {schema}.buckets (child, bucket, open)
    SELECT * FROM unnest($6::uuid[], $7::integer[], $8::integer[])
)
INSERT INTO {schema}.edges (parent, child, position, bucket, anyway)
SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::integer[], $5::boolean[])
