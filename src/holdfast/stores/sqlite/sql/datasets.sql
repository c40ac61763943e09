-- Datasets by name, with their latest version and how many there are.
SELECT d.name, d.uuid, v.version, v.mode, v.rows, v.added, v.task_id, v.created_at, d.created_at,
    (SELECT count(*) FROM holdfast_versions AS k WHERE k.dataset = d.seq)
FROM (SELECT * FROM holdfast_datasets WHERE name > :after ORDER BY name LIMIT :limit) AS d
CROSS JOIN holdfast_versions AS v
    ON v.dataset = d.seq AND v.version = (SELECT max(l.version) FROM holdfast_versions AS l WHERE l.dataset = d.seq)
ORDER BY d.name
