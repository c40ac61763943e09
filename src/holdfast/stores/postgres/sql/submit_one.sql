-- One new task, due now or after a delay, with its event and count: submit.sql without what many need.
{include add_one}
counted AS (
    INSERT INTO {schema}.counts (queue, waiting, queued)
    SELECT queue, (status = 'waiting')::integer, (status = 'queued')::integer FROM added
)
SELECT NULL::boolean
