"""The list of workers, and what becomes of the leases of one that is gone (contract C6.7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.clock import from_micros, span_micros
from holdfast.model.claim import Lease
from holdfast.model.query import WorkerInfo
from holdfast.policy.enrolment import REMOTE_KEPT_SECONDS
from holdfast.stores.sqlite import leases
from holdfast.stores.sqlite.presence import Presence
from holdfast.stores.sqlite.statements import json_param, text_param
from holdfast.stores.sqlite.tx import Tx

_UPSERT = """
INSERT INTO holdfast_workers (id, nonce, host, pid, queues, concurrency, version, names, started_at, seen_at, remote)
VALUES (:id, :nonce, :host, :pid, :queues, :concurrency, :version, :names, :now, :now, :remote)
ON CONFLICT (id) DO UPDATE SET nonce = excluded.nonce, host = excluded.host, pid = excluded.pid,
    queues = excluded.queues, concurrency = excluded.concurrency, version = excluded.version, names = excluded.names,
    seen_at = excluded.seen_at, remote = excluded.remote
WHERE remote OR NOT excluded.remote
"""
_END_LEASES = """
UPDATE holdfast_tasks SET lease_expires_at = min(:now, lease_expires_at)
WHERE status = 'running' AND lease_expires_at > :now AND claimed_by = :worker_id
"""
_LISTED = """
SELECT w.id, w.host, w.pid, w.queues, w.concurrency, w.version, w.names, w.started_at, w.seen_at, w.remote,
    (SELECT count(*) FROM holdfast_tasks AS t WHERE t.status = 'running' AND t.claimed_by = w.id)
FROM holdfast_workers AS w ORDER BY w.seq
"""

_WITH_FILES = "SELECT id, nonce FROM holdfast_workers WHERE NOT remote ORDER BY seq"
_SILENT = "SELECT 1 FROM holdfast_workers WHERE remote AND seen_at <= ? LIMIT 1"
_FORGET = "DELETE FROM holdfast_workers WHERE remote AND seen_at <= ?"


class Enrolled(NamedTuple):
    worker_id: str
    nonce: str


def enroll(tx: Tx, worker: WorkerInfo, presence: Presence) -> None:
    """The lock is taken before the row is written: a row without a locked file means a worker that is gone.

    A remote one has none: what could be locked here is the dispatcher's, whose death is not its workers'.
    """
    nonce = "" if worker.remote else presence.hold(worker.id)
    before = tx.conn.execute("SELECT nonce FROM holdfast_workers WHERE id = ?", (worker.id,)).fetchone()
    if before is not None and before[0] not in ("", nonce) and presence.gone(before[0]):
        _end_leases(tx, worker.id)  # a predecessor of the same name, dead and not evicted yet
        presence.forget(before[0])
    parameters = {
        "id": worker.id,
        "nonce": nonce,
        "host": worker.host,
        "pid": worker.pid,
        "queues": None if worker.queues is None else json_param(worker.queues),
        "concurrency": worker.concurrency,
        "version": worker.version,
        "names": json_param(worker.names),
        "now": tx.now,
        "remote": int(worker.remote),
    }
    tx.conn.execute(_UPSERT, parameters)


def leave(tx: Tx, worker_id: str, held: Sequence[Lease] | None = None) -> None:
    if held is None:
        tx.conn.execute("DELETE FROM holdfast_workers WHERE id = ?", (text_param(worker_id),))
        _end_leases(tx, worker_id)
    else:
        tx.conn.execute("DELETE FROM holdfast_workers WHERE id = ? AND remote", (text_param(worker_id),))
        leases.end(tx, held)


def listed(conn: sqlite3.Connection) -> list[WorkerInfo]:
    return [
        WorkerInfo(
            id=worker_id,
            host=host,
            pid=pid,
            queues=None if queues is None else msgspec.json.decode(queues),
            concurrency=concurrency,
            version=version,
            names=msgspec.json.decode(names),
            started_at=from_micros(started_at),
            seen_at=from_micros(seen_at),
            running=running,
            remote=bool(remote),
        )
        for worker_id, host, pid, queues, concurrency, version, names, started_at, seen_at, remote, running in (
            conn.execute(_LISTED)
        )
    ]


def gone(conn: sqlite3.Connection, presence: Presence) -> list[Enrolled]:
    """Workers whose file nobody holds any more. Those of this process are not asked about, nor those without one."""
    enrolled = [Enrolled(*row) for row in conn.execute(_WITH_FILES)]
    return [one for one in enrolled if not presence.here(one.worker_id) and presence.gone(one.nonce)]


def evict(tx: Tx, found: Sequence[Enrolled], presence: Presence) -> list[str]:
    """End the leases of those that are still gone: one that enrolled again meanwhile has another nonce."""
    evicted = []
    for one in found:
        row = tx.conn.execute("SELECT nonce FROM holdfast_workers WHERE id = ?", (one.worker_id,)).fetchone()
        if row is not None and row[0] == one.nonce and presence.gone(one.nonce):
            leave(tx, one.worker_id)
            presence.forget(one.nonce)
            evicted.append(one.worker_id)
    return evicted


def none_silent(conn: sqlite3.Connection, now: int) -> int | None:
    return 0 if conn.execute(_SILENT, (_long_ago(now),)).fetchone() is None else None


def forget_silent(tx: Tx) -> int:
    """Remote workers that were not seen for long are listed no more; their leases stay. How many."""
    return tx.conn.execute(_FORGET, (_long_ago(tx.now),)).rowcount


def _long_ago(now: int) -> int:
    return now - span_micros(REMOTE_KEPT_SECONDS)


def _end_leases(tx: Tx, worker_id: str) -> None:
    tx.conn.execute(_END_LEASES, {"now": tx.now, "worker_id": text_param(worker_id)})
    tx.leases = True
