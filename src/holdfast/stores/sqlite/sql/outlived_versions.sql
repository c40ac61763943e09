-- Superseded versions that are old enough to go, oldest first. What a task that has not ended reads stays: by its number;
-- or written by one of its parents; or by one that was deleted since, whose edges are gone (the task was requeued).
SELECT json_group_array(json_array(dataset, version, base)) FROM (
    SELECT v.dataset, v.version, v.base
    FROM holdfast_versions AS v CROSS JOIN holdfast_datasets AS d ON d.seq = v.dataset
    WHERE v.superseded AND v.created_at <= :before
      AND NOT EXISTS (
          SELECT 1 FROM holdfast_pins AS p CROSS JOIN holdfast_tasks AS t ON t.seq = p.task
          WHERE p.dataset = d.name AND p.version = v.version AND t.status IN ('waiting', 'queued', 'running')
      )
      AND NOT EXISTS (
          SELECT 1 FROM holdfast_tasks AS w CROSS JOIN holdfast_edges AS e ON e.parent = w.seq
          CROSS JOIN holdfast_pins AS p ON p.dataset = d.name AND p.version = 0 AND p.task = e.child
          CROSS JOIN holdfast_tasks AS t ON t.seq = p.task
          WHERE w.id = v.task_id AND t.status IN ('waiting', 'queued', 'running')
      )
      AND (
          EXISTS (SELECT 1 FROM holdfast_tasks AS w WHERE w.id = v.task_id)
          OR NOT EXISTS (
              SELECT 1 FROM holdfast_pins AS p CROSS JOIN holdfast_tasks AS t ON t.seq = p.task
              CROSS JOIN json_each(coalesce(
                  nullif(t.parents, ''), (SELECT a.parents FROM holdfast_parents AS a WHERE a.task = t.seq)
              )) AS named
              WHERE p.dataset = d.name AND p.version = 0 AND t.status IN ('waiting', 'queued', 'running')
                AND named.value = v.task_id
          )
      )
    ORDER BY v.created_at LIMIT :limit
)
