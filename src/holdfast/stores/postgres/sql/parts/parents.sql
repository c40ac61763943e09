CASE WHEN t.parents > 0 THEN ARRAY(
        SELECT e.parent::text FROM {schema}.edges AS e WHERE e.child = t.id ORDER BY e.position
    ) END AS parents