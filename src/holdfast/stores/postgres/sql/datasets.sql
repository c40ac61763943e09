-- By name, each with its latest version.
SELECT
    {include version}, d.created_at AS made_at,
    (SELECT count(*) FROM {schema}.dataset_versions AS k WHERE k.dataset = d.name) AS versions
FROM {schema}.datasets AS d
JOIN {schema}.dataset_versions AS v ON v.dataset = d.name AND v.version = d.last
WHERE $1::text IS NULL OR d.name > $1::text
ORDER BY d.name LIMIT $2::bigint
