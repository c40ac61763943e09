SELECT name, url, effect, kinds, queues, secret, private FROM {schema}.sinks ORDER BY name
