-- Is there anything to take for these sinks?
SELECT EXISTS (
    SELECT 1 FROM json_each(:sinks) AS given
    CROSS JOIN holdfast_outbox AS o ON o.head AND o.sink = given.value AND o.free_at <= :now
)
