-- For these keys ($6) of a queue: which of their tasks may start.
SELECT k.key, found.*
FROM unnest($6::text[]) AS k (key)
CROSS JOIN LATERAL (
{include of_key}
) AS found
