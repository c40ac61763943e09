-- Those of these (dataset, version) that exist.
SELECT json_group_array(json_array(d.name, v.version))
FROM json_each(:pins) AS given
CROSS JOIN holdfast_datasets AS d ON d.name = given.value ->> 0
CROSS JOIN holdfast_versions AS v ON v.dataset = d.seq AND v.version = given.value ->> 1
