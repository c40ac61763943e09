-- The first rows of a base.
DELETE FROM holdfast_rows
WHERE dataset = :dataset AND base = :base AND key <= (
    SELECT max(key) FROM (
        SELECT r.key FROM holdfast_rows AS r WHERE r.dataset = :dataset AND r.base = :base ORDER BY r.key LIMIT :limit
    )
)
