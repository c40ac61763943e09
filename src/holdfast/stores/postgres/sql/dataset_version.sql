-- One version, or, without a number, the latest.
SELECT {include version}
FROM {schema}.datasets AS d
JOIN {schema}.dataset_versions AS v ON v.dataset = d.name AND v.version = coalesce($2::bigint, d.last)
WHERE d.name = $1::text
