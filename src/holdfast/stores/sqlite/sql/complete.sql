-- The plain good end of running attempts whose fence was checked in this transaction (seq → result).
UPDATE holdfast_tasks
SET status = 'completed', result = given.value, finished_at = :now,
    settled_token = token, settled_as = 'completed', settled_status = 'completed',
    token = NULL, claim_id = NULL, claimed_by = NULL, lease_expires_at = NULL, canceled_because = NULL,
    begun = 0, placed = 0
FROM json_each(:results) AS given
WHERE seq = given.key
