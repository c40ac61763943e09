-- Leases on up to $4 due tasks, best first, on the shelves given: $7 to $10 are their queues, priorities and fronts,
-- the highest priority first (see fronts.py), each priority once. $6: as many tokens, drawn by the client.
--
-- Rows are pulled one by one: a shelf is looked at only once those above it gave too little, and no more rows are locked
-- than are taken.
--
-- `known`: this claim was granted before. Of two that are sent at once neither sees what the other is granted; but only
-- one can insert its row into `claims`, and the other, which has waited for it, fails there and has taken nothing.
WITH
moment AS MATERIALIZED (SELECT coalesce($1::timestamptz, clock_timestamp()) AS now),
known AS MATERIALIZED (SELECT true AS yes FROM {schema}.claims AS c WHERE c.claim_id = $2::text),
{include shelves}
picked AS MATERIALIZED (
    SELECT best.tid, false AS begun
    FROM shelf
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid FROM {schema}.tasks AS t
        WHERE t.status = 'queued' AND t.queue = shelf.queue AND t.priority = shelf.priority
          AND (t.run_at, t.seq) >= (shelf.run_at, shelf.seq) AND t.run_at <= (SELECT moment.now FROM moment)
        ORDER BY t.run_at, t.seq LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ) AS best
    LIMIT $4::bigint
),
{include grant}