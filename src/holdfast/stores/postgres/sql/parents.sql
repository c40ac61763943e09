SELECT p.id::text AS task_id, p.name, p.status, p.result, p.last_error, p.last_error_at
FROM {schema}.edges AS e
JOIN {schema}.tasks AS p ON p.id = e.parent
WHERE e.child = $1::uuid AND e.position >= $2::bigint AND e.position < $2::bigint + $3::bigint
ORDER BY e.position
