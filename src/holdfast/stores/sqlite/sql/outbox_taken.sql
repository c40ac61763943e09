UPDATE holdfast_outbox SET hold = :hold, free_at = :until WHERE id IN (SELECT value FROM json_each(:rows))
