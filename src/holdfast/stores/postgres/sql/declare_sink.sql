INSERT INTO {schema}.sinks (name, url, effect, kinds, queues, secret, private, created_at)
VALUES (
    $2::text, $3::text, $4::text, $5::text[], $6::text[], $7::text, $8::boolean,
    coalesce($1::timestamptz, clock_timestamp())
)
ON CONFLICT (name) DO UPDATE SET url = excluded.url, effect = excluded.effect, kinds = excluded.kinds,
    queues = excluded.queues, secret = excluded.secret, private = excluded.private
