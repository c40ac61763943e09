"""The end of old versions of datasets (contract C13.3): what is superseded, old, and read by no task that may run."""

from __future__ import annotations

import sqlite3

from holdfast.clock import span_micros
from holdfast.model.query import Retention
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.tx import Tx

ROWS_AT_ONCE = 20_000
"""So many rows of bases that no version is left of go with one prune."""
_DROPPED = "SELECT dataset, base FROM holdfast_dropped LIMIT 1"
_DONE = "DELETE FROM holdfast_dropped WHERE dataset = ? AND base = ?"


def nothing(conn: sqlite3.Connection, retention: Retention, now: int) -> bool:
    """There is nothing to prune."""
    return _outlived(conn, retention, now, 1) is None and conn.execute(_DROPPED).fetchone() is None


def prune(tx: Tx, retention: Retention, limit: int) -> int:
    """How many versions went. Their rows follow, in later calls too."""
    gone = 0
    found = _outlived(tx.conn, retention, tx.now, limit) if limit > 0 else None
    if found is not None:
        gone = tx.run("drop_versions", versions=found).rowcount
        tx.run("drop_bases", versions=found)
    _drop_rows(tx)
    return gone


def _outlived(conn: sqlite3.Connection, retention: Retention, now: int, limit: int) -> str | None:
    """[[dataset, version, base], …]; None where there is none."""
    if retention.outputs is None:
        return None
    before = now - span_micros(retention.outputs.total_seconds())
    found = conn.execute(statement("outlived_versions"), {"before": before, "limit": limit}).fetchone()[0]
    return None if found == "[]" else str(found)


def _drop_rows(tx: Tx) -> None:
    room = ROWS_AT_ONCE
    while room > 0:
        dropped = tx.conn.execute(_DROPPED).fetchone()
        if dropped is None:
            return
        dataset, base = dropped
        gone = tx.run("drop_rows", dataset=dataset, base=base, limit=room).rowcount
        if gone < room:
            tx.conn.execute(_DONE, (dataset, base))
        room -= gone
