-- What waits for what. The record holds only numbers, so that a settle never rewrites anything that grows with its
-- workflow (docs/adr/0012-workflows.md).

ALTER TABLE holdfast_tasks ADD COLUMN pending INTEGER NOT NULL DEFAULT 0;      -- parents that it still waits for
ALTER TABLE holdfast_tasks ADD COLUMN dependents INTEGER NOT NULL DEFAULT 0;   -- edges that leave it
ALTER TABLE holdfast_tasks ADD COLUMN delay INTEGER;                           -- NULL: its time was given
ALTER TABLE holdfast_tasks ADD COLUMN fail_fast TEXT;

CREATE INDEX holdfast_blamed ON holdfast_tasks (canceled_because) WHERE canceled_because IS NOT NULL;
CREATE INDEX holdfast_fast ON holdfast_tasks (run_id, fail_fast)
    WHERE fail_fast IS NOT NULL AND status IN ('waiting', 'queued', 'running');
CREATE INDEX holdfast_broken ON holdfast_tasks (run_id) WHERE dependents > 0 AND status IN ('failed', 'canceled');

-- `parent` and `child` are seqs; `position` is the parent's place among those that the child names. `counted`: the child
-- was told of an end of the parent that may be undone. An edge goes with its child, or with a parent that is completed.
CREATE TABLE holdfast_edges (
    parent INTEGER NOT NULL,
    child INTEGER NOT NULL,
    position INTEGER NOT NULL,
    counted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, child, position)
) WITHOUT ROWID;

CREATE INDEX holdfast_edges_child ON holdfast_edges (child, position);

-- The ids of a task's parents, where the text is long; then it is '' in the task.
CREATE TABLE holdfast_parents (
    task INTEGER PRIMARY KEY,
    parents TEXT NOT NULL
);

-- What a verb has left to be done because there was too much of it (see advance.py). (`child`, `position`) is how far it
-- has come; `status` is that of the task when it was written.
CREATE TABLE holdfast_advances (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    actor TEXT NOT NULL,
    child INTEGER NOT NULL DEFAULT 0,
    position INTEGER NOT NULL DEFAULT 0,
    UNIQUE (task, kind)
);

CREATE TABLE holdfast_steps (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    name TEXT NOT NULL,
    result TEXT NOT NULL,
    at INTEGER NOT NULL,
    UNIQUE (task, name)
);
