-- Rows that stay: id, state, due_at, tries, told, last_error. Nobody holds them any more.
UPDATE holdfast_outbox AS o
SET state = given.value ->> 1, due_at = given.value ->> 2, free_at = given.value ->> 2, tries = given.value ->> 3,
    told = given.value ->> 4, last_error = given.value ->> 5, hold = NULL,
    head = o.head AND given.value ->> 1 = 'pending'
FROM json_each(:rows) AS given
WHERE o.id = given.value ->> 0
