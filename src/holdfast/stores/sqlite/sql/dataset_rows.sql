SELECT r.key, r.value FROM holdfast_rows AS r
WHERE r.dataset = :dataset AND r.base = :base AND r.key > :after AND r.version <= :version
ORDER BY r.key LIMIT :limit
