SELECT name, url, effect, kinds, queues, secret, private FROM holdfast_sinks ORDER BY name
