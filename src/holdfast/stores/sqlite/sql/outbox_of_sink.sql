-- All that waits for a sink, or was given up, the dead first.
SELECT json_group_array(id) FROM (
    SELECT o.id FROM holdfast_outbox AS o INDEXED BY holdfast_outbox_dead WHERE o.sink = :sink AND o.state = 'dead'
    UNION ALL
    SELECT o.id FROM holdfast_outbox AS o WHERE o.sink = :sink AND o.state = 'pending'
)
