UPDATE holdfast_versions SET superseded = 1 WHERE dataset = :dataset AND version = :version
