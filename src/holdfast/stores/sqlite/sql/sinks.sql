-- Sinks as people read them: with the number and the age of the rows that are due or have failed, and the number of
-- dead ones, each up to a bound.
SELECT s.name, s.url, s.effect, s.kinds, s.queues, s.private, s.secret IS NOT NULL, s.created_at,
    (
        SELECT json_array(count(*), min(w.created_at)) FROM (
            SELECT * FROM (
                SELECT o.created_at FROM holdfast_outbox AS o
                WHERE o.state = 'pending' AND o.sink = s.name AND o.due_at <= :now ORDER BY o.due_at LIMIT :most
            )
            UNION ALL
            SELECT * FROM (
                SELECT o.created_at FROM holdfast_outbox AS o
                WHERE o.state = 'pending' AND o.last_error IS NOT NULL AND o.sink = s.name AND o.due_at > :now
                LIMIT :most
            )
        ) AS w
    ),
    (SELECT count(*) FROM (
        SELECT 1 FROM holdfast_outbox AS o INDEXED BY holdfast_outbox_dead
        WHERE o.state = 'dead' AND o.sink = s.name LIMIT :most
    ))
FROM holdfast_sinks AS s ORDER BY s.name
