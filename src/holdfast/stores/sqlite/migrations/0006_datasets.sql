-- What tasks write that others read (docs/adr/0015-outputs.md). `dataset` is the seq of a dataset, but for pins.

CREATE TABLE holdfast_datasets (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    uuid TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

-- `base` is the version with which the rows begin that this one shares: the last `replace`, or the first version.
CREATE TABLE holdfast_versions (
    dataset INTEGER NOT NULL,
    version INTEGER NOT NULL,
    base INTEGER NOT NULL,
    mode TEXT NOT NULL,
    rows INTEGER NOT NULL,
    added INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    superseded INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (dataset, version)
) WITHOUT ROWID;

CREATE INDEX holdfast_versions_writer ON holdfast_versions (dataset, task_id);
CREATE INDEX holdfast_versions_base ON holdfast_versions (dataset, base);
CREATE INDEX holdfast_superseded ON holdfast_versions (created_at) WHERE superseded;

-- `version` is the one with which the row came.
CREATE TABLE holdfast_rows (
    dataset INTEGER NOT NULL,
    base INTEGER NOT NULL,
    key TEXT NOT NULL,
    version INTEGER NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (dataset, base, key)
) WITHOUT ROWID;

-- Bases whose last version was pruned: their rows go in bounded batches.
CREATE TABLE holdfast_dropped (
    dataset INTEGER NOT NULL,
    base INTEGER NOT NULL,
    PRIMARY KEY (dataset, base)
) WITHOUT ROWID;

-- The inputs of tasks, for those who prune. `dataset` is a name, since what a parent is to write may not exist yet; its
-- `version` is 0. The task repeats its inputs as it was given them: [[dataset, version], …].
CREATE TABLE holdfast_pins (
    dataset TEXT NOT NULL,
    version INTEGER NOT NULL,
    task INTEGER NOT NULL,
    PRIMARY KEY (dataset, version, task)
) WITHOUT ROWID;

CREATE INDEX holdfast_pins_task ON holdfast_pins (task);

ALTER TABLE holdfast_tasks ADD COLUMN inputs TEXT;                              -- NULL: none
