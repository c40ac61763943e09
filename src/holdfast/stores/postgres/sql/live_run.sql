-- Has this run still a live task?
SELECT EXISTS (
    SELECT FROM {schema}.tasks
    WHERE run_id = $1::text AND run_id IS NOT NULL AND status IN ('waiting', 'queued', 'running')
)
