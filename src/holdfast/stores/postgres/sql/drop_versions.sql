-- Of these locked versions those that nobody has pinned since they were found; the bases that they had.
DELETE FROM {schema}.dataset_versions AS v
USING unnest($1::text[], $2::bigint[]) AS g (dataset, version)
WHERE v.dataset = g.dataset AND v.version = g.version
  AND {include unpinned}
RETURNING v.dataset, v.base
