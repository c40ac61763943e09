-- The first of these pins to a version that is not there.
SELECT g.dataset, g.version
FROM unnest($1::text[], $2::bigint[]) WITH ORDINALITY AS g (dataset, version, n)
WHERE NOT EXISTS (SELECT FROM {schema}.dataset_versions AS v WHERE v.dataset = g.dataset AND v.version = g.version)
ORDER BY g.n LIMIT 1
