-- Tasks that ended, or were asked to, because of this one: in the order of submission, after $2.
SELECT t.id::text AS id, t.seq, t.parents FROM {schema}.tasks AS t
WHERE t.canceled_because = $1::text AND t.canceled_because IS NOT NULL AND t.seq > $2::bigint
ORDER BY t.seq LIMIT $3::bigint
