-- The rows of a version, by key; an empty one where there is none after $3. Nothing at all: there is no such version.
SELECT r.key, r.value
FROM {schema}.dataset_versions AS v
LEFT JOIN LATERAL (
    SELECT r.key, r.value FROM {schema}.dataset_rows AS r
    WHERE r.dataset = v.dataset AND r.base = v.base AND r.key > $3::text AND r.version <= v.version
    ORDER BY r.key LIMIT $4::bigint
) AS r ON true
WHERE v.dataset = $1::text AND v.version = $2::bigint
ORDER BY r.key
