NOT EXISTS (
    SELECT FROM {schema}.pins AS p
    JOIN {schema}.tasks AS t ON t.id = p.task_id
    WHERE p.dataset = v.dataset AND p.version = v.version AND t.status IN ('waiting', 'queued', 'running')
) AND NOT EXISTS (
    SELECT FROM {schema}.edges AS e
    JOIN {schema}.pins AS p ON p.task_id = e.child
    JOIN {schema}.tasks AS t ON t.id = e.child
    WHERE e.parent = v.task_id AND p.dataset = v.dataset AND p.version IS NULL
      AND t.status IN ('waiting', 'queued', 'running')
      AND NOT EXISTS (
          SELECT FROM {schema}.edges AS beside
          JOIN {schema}.dataset_versions AS later ON later.task_id = beside.parent
          WHERE beside.child = e.child AND later.dataset = v.dataset AND later.version > v.version
      )
)