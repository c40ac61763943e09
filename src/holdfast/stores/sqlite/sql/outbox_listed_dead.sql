SELECT json_group_array(id) FROM (
    SELECT id FROM holdfast_outbox INDEXED BY holdfast_outbox_dead
    WHERE id > :after AND (:sink IS NULL OR sink = :sink) AND state = 'dead'
    ORDER BY id LIMIT :limit
)
