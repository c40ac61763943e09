-- Since when this server is there: `started_at`; and `left_at`, when the one that it has taken over from was last heard
-- of, if nothing of ours was written since. What a promoted standby replayed last it keeps showing until it restarts.
SELECT
    clock_timestamp() AS now,
    pg_postmaster_start_time() AS started_at,
    CASE WHEN NOT EXISTS (
        SELECT FROM (SELECT at FROM {schema}.events ORDER BY id DESC LIMIT 1) AS latest
        WHERE latest.at > pg_last_xact_replay_timestamp()
    ) THEN pg_last_xact_replay_timestamp() END AS left_at
