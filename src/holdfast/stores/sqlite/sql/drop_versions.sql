DELETE FROM holdfast_versions WHERE (dataset, version) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:versions))
