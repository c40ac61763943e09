-- Every event becomes a row for each sink that wants it. A tombstone is written while its task still exists.
CREATE TRIGGER holdfast_route AFTER INSERT ON holdfast_events
BEGIN
    INSERT INTO holdfast_outbox (
        sink, effect, task_id, queue, created_at, due_at, free_at, head,
        event, at, run_id, kind, actor, attempt, data, name, parents, max_attempts
    )
    SELECT s.name, s.effect, t.id, t.queue, NEW.at, NEW.at, NEW.at,
        NOT EXISTS (
            SELECT 1 FROM holdfast_outbox AS o
            WHERE o.effect = 'route_event' AND o.state = 'pending' AND o.sink = s.name AND o.task_id = t.id
        ),
        NEW.id, NEW.at, t.run_id, NEW.kind, NEW.actor, NEW.attempt, NEW.data, t.name,
        CASE WHEN t.parents IS NOT NULL THEN '' END, t.max_attempts
    FROM holdfast_sinks AS s
    CROSS JOIN holdfast_tasks AS t
        ON t.seq = coalesce(NEW.task, (SELECT d.seq FROM holdfast_tasks AS d WHERE d.id = NEW.task_id))
    WHERE s.effect = 'route_event'
      AND (s.kinds IS NULL OR EXISTS (SELECT 1 FROM json_each(s.kinds) AS k WHERE k.value = NEW.kind))
      AND (s.queues IS NULL OR EXISTS (SELECT 1 FROM json_each(s.queues) AS q WHERE q.value = t.queue));
END
