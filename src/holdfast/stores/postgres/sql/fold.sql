-- Puts many rows of counts into one per queue. A queue keeps a row even where all is nought: it has been seen.
WITH gone AS (
    DELETE FROM {schema}.counts
    WHERE ctid = ANY (ARRAY(SELECT c.ctid FROM {schema}.counts AS c LIMIT 20000 FOR UPDATE SKIP LOCKED))
    RETURNING *
)
INSERT INTO {schema}.counts (queue, waiting, queued, running, completed, failed, canceled)
SELECT queue, sum(waiting), sum(queued), sum(running), sum(completed), sum(failed), sum(canceled)
FROM gone GROUP BY queue
