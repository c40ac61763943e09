SELECT json_group_array(id) FROM (
    SELECT id FROM holdfast_outbox
    WHERE id > :after AND (:sink IS NULL OR sink = :sink) AND (:state IS NULL OR state = :state)
    ORDER BY id LIMIT :limit
)
