UPDATE {schema}.queues AS q SET rate_tat = g.tat
FROM unnest($1::text[], $2::bigint[]) AS g (name, tat) WHERE q.name = g.name
