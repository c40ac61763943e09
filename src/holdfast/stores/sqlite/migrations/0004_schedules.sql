-- `task` is a NewTask as JSON. Spans are seconds. An empty `declared_at`: a person put it there at run time.
CREATE TABLE holdfast_schedules (
    name TEXT PRIMARY KEY,
    cron TEXT,
    timezone TEXT NOT NULL,
    every REAL,
    jitter REAL NOT NULL,
    missed TEXT NOT NULL,
    missed_most INTEGER NOT NULL,
    task TEXT NOT NULL,
    paused INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    last_fired_at INTEGER NOT NULL,
    declared_at INTEGER
) WITHOUT ROWID;
