-- Bases that have no versions any more: their rows go next.
INSERT INTO {schema}.loose_bases (dataset, base)
SELECT DISTINCT g.dataset, g.base FROM unnest($1::text[], $2::bigint[]) AS g (dataset, base)
WHERE NOT EXISTS (SELECT FROM {schema}.dataset_versions AS v WHERE v.dataset = g.dataset AND v.base = g.base)
ON CONFLICT DO NOTHING
