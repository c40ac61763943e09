SELECT json_group_array(id) FROM (
    SELECT id FROM holdfast_tasks WHERE status = 'running' AND lease_expires_at <= :now
    ORDER BY lease_expires_at, seq LIMIT :limit
)
