SELECT d.name, d.uuid, v.version, v.mode, v.rows, v.added, v.task_id, v.created_at
FROM holdfast_datasets AS d CROSS JOIN holdfast_versions AS v ON v.dataset = d.seq AND v.version < :before
WHERE d.name = :dataset
ORDER BY v.version DESC LIMIT :limit
