INSERT INTO holdfast_sinks (name, url, effect, kinds, queues, secret, private, created_at)
VALUES (:name, :url, :effect, :kinds, :queues, :secret, :private, :now)
ON CONFLICT (name) DO UPDATE SET
    url = excluded.url, effect = excluded.effect, kinds = excluded.kinds, queues = excluded.queues,
    secret = excluded.secret, private = excluded.private
