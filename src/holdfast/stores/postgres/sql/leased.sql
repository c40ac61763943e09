-- What is known of these tasks' leases without waiting for whoever is at them.
SELECT t.id::text AS id, t.status, t.attempt, t.token::text AS token, t.lease_expires_at, t.cancel_requested_at
FROM {schema}.tasks AS t WHERE t.id = ANY ($1::uuid[])
