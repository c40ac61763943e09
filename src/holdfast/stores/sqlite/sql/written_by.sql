-- The latest version of a dataset that one of these tasks wrote.
SELECT max(v.version)
FROM holdfast_datasets AS d CROSS JOIN json_each(:tasks) AS given
CROSS JOIN holdfast_versions AS v ON v.dataset = d.seq AND v.task_id = given.value
WHERE d.name = :dataset
