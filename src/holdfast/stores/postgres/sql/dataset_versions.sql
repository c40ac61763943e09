-- Newest first.
SELECT {include version}
FROM {schema}.dataset_versions AS v
JOIN {schema}.datasets AS d ON d.name = v.dataset
WHERE v.dataset = $1::text AND v.version < $2::bigint
ORDER BY v.version DESC LIMIT $3::bigint
