DELETE FROM holdfast_outbox WHERE id IN (SELECT value FROM json_each(:rows))
