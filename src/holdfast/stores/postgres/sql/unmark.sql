-- Marks of claims that can no longer be under way.
DELETE FROM {schema}.claims WHERE claim_id = ANY (ARRAY(
    SELECT c.claim_id FROM {schema}.claims AS c
    WHERE c.at <= coalesce($1::timestamptz, now()) - interval '10 minutes'
    ORDER BY c.at LIMIT greatest($2::bigint, 10000) FOR UPDATE SKIP LOCKED
))
