SELECT version, base, rows FROM holdfast_versions WHERE dataset = :dataset ORDER BY version DESC LIMIT 1
