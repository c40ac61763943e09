"""How many tasks each queue has per status: kept equal to the real numbers, once per transaction."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

from holdfast.model.task import TaskStatus
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.statements import json_param, statement
from holdfast.stores.sqlite.tx import Tx


def write(conn: sqlite3.Connection, done: Iterable[Tx], path: str) -> None:
    """What these verbs changed, together. SchemaMismatch if the schema has moved on: then nothing may be committed."""
    counts: Counter[tuple[str, TaskStatus]] = Counter()
    for tx in done:
        counts.update(tx.counts)
    deltas = [(queue, status, n) for (queue, status), n in counts.items() if n]
    if deltas:
        parameters = {"deltas": json_param(deltas), "version": schema.newest()}
        moved_on = conn.execute(statement("counts"), parameters).rowcount != len(deltas)
    else:
        moved_on = schema.recorded(conn) != schema.newest()
    if moved_on:
        raise schema.too_new(path, schema.recorded(conn))
