-- `task` is a NewTask as JSON. Spans are seconds. An empty `declared_at`: a person put it there at run time.
CREATE TABLE {schema}.schedules (
    name text COLLATE "C" PRIMARY KEY,
    cron text COLLATE "C",
    timezone text COLLATE "C" NOT NULL,
    every double precision,
    jitter double precision NOT NULL,
    missed text COLLATE "C" NOT NULL,
    missed_most integer NOT NULL,
    paused boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    last_fired_at timestamptz NOT NULL,
    declared_at timestamptz,
    task text COLLATE "C" NOT NULL
);
