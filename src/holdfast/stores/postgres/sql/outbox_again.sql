-- Rows that are to be told again, or are given up: those without a time.
UPDATE {schema}.outbox AS o
SET hold = NULL, state = CASE WHEN g.due_at IS NULL THEN 'dead' ELSE 'pending' END,
    due_at = coalesce(g.due_at, o.due_at), free_at = g.due_at, tries = g.tries, told = g.told,
    last_error = g.last_error
FROM unnest($1::bigint[], $2::timestamptz[], $3::integer[], $4::integer[], $5::text[])
    AS g (id, due_at, tries, told, last_error)
WHERE o.id = g.id
