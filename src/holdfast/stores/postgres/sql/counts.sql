INSERT INTO {schema}.counts (queue, waiting, queued, running, completed, failed, canceled)
SELECT * FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[]
)
