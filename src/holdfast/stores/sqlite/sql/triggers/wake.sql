-- A task that has become claimable is announced when it is due. Verbs write events after records, so its status is the
-- one that it will have.
CREATE TRIGGER holdfast_wake AFTER INSERT ON holdfast_events
WHEN NEW.kind IN ('task.enqueued', 'task.ready', 'task.requeued', 'task.snoozed', 'task.released')
BEGIN
    INSERT OR REPLACE INTO holdfast_outbox (sink, effect, task_id, queue, created_at, due_at, free_at, head)
    SELECT s.name, s.effect, t.id, t.queue, NEW.at, max(t.run_at, NEW.at), max(t.run_at, NEW.at), 1
    FROM holdfast_tasks AS t CROSS JOIN holdfast_sinks AS s
    WHERE t.seq = NEW.task AND t.status = 'queued' AND s.effect = 'enqueue_task'
      AND (s.queues IS NULL OR EXISTS (SELECT 1 FROM json_each(s.queues) AS q WHERE q.value = t.queue));
END
