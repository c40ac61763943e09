-- All that waits for a sink, or was given up, is forgotten.
DELETE FROM holdfast_outbox WHERE id IN (
    SELECT o.id FROM holdfast_outbox AS o WHERE o.sink = :sink AND o.state = 'pending'
    UNION ALL
    SELECT o.id FROM holdfast_outbox AS o WHERE o.sink = :sink AND o.state = 'dead'
)
