UPDATE holdfast_tasks SET lease_expires_at = given.value FROM json_each(:until) AS given WHERE seq = given.key
