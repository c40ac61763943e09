-- By dataset, the latest version that a parent of this task wrote.
SELECT v.dataset, max(v.version) AS version
FROM {schema}.edges AS e
JOIN {schema}.dataset_versions AS v ON v.task_id = e.parent
WHERE e.child = $1::uuid
GROUP BY v.dataset
