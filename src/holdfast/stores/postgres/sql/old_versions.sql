-- Versions that are old enough to go, oldest first, locked: not the latest of a dataset, and nothing that a live task
-- reads. Datasets are locked too, so that of two who prune the last versions of a base one sees that it is the last. What
-- a submit is just pinning, or a completion writing to, is passed by.
SELECT v.dataset, v.version
FROM {schema}.dataset_versions AS v
JOIN {schema}.datasets AS d ON d.name = v.dataset
WHERE NOT v.latest
  AND v.created_at <= coalesce($1::timestamptz, now()) - $2::bigint * interval '1 microsecond'
  AND {include unpinned}
ORDER BY v.created_at LIMIT $3::bigint
FOR UPDATE OF v, d SKIP LOCKED
