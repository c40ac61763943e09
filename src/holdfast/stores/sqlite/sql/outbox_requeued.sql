UPDATE holdfast_outbox
SET state = 'pending', tries = 0, due_at = :now, free_at = :now, head = effect = 'enqueue_task'
WHERE id IN (SELECT value FROM json_each(:rows))
