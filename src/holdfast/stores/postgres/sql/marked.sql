-- Whatever runs in these queues is marked, and stays so: everybody knows of their limits by now.
UPDATE {schema}.queues SET changed_at = NULL WHERE name = ANY ($1::text[])
