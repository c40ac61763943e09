"""Which parent keeps a task from running: one that failed or was canceled, unless it runs anyway (C10.3, C10.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.task import TaskStatus
from holdfast.policy.workflow import RUNS_ANYWAY
from holdfast.stores.sqlite import records
from holdfast.stores.sqlite.apart import parents_of
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Tx

FIRST = 64
"""So many parents of a task are looked at one by one. Of more, only those that did not end well are."""

Blocker = tuple[str, str | None]
"""Its id, and what it was canceled because of."""


class _Row(msgspec.Struct, array_like=True, gc=False):
    child: int
    position: int
    seq: int | None
    id: str | None
    canceled_because: str | None
    more: int


_decoder = msgspec.json.Decoder(list[_Row])


class Blockers:
    """Of a batch of records that is being changed, parents before children."""

    def __init__(self, tx: Tx, batch: Sequence[Record]) -> None:
        self._tx = tx
        self._batch = {record.seq: record for record in batch}
        self._rows: dict[int, list[_Row]] = {}
        asked = [record.seq for record in batch if _may_be_blocked(record)]
        if asked:
            for row in _decoder.decode(tx.row("blockers", children=json_param(asked), first=FIRST)[0]):
                self._rows.setdefault(row.child, []).append(row)

    def of(self, record: Record) -> Blocker | None:
        """The first one."""
        for row in self._rows.get(record.seq, ()):
            found = self._among_many(record) if row.more else self._blocker(record, row)
            if found is not None:
                return found
        return None

    def _blocker(self, record: Record, row: _Row) -> Blocker | None:
        if row.seq is None:
            return _gone(self._tx, record, row.position)
        fresher = self._batch.get(row.seq)
        if fresher is None:
            return str(row.id), row.canceled_because
        undone = fresher.status in (TaskStatus.FAILED, TaskStatus.CANCELED)
        return (fresher.id, fresher.canceled_because) if undone else None

    def _among_many(self, record: Record) -> Blocker | None:
        tx = self._tx
        records.save(tx, self._batch.values())
        found: Blocker | None = tx.row("blocker", run_id=record.run_id, child=record.seq)
        if found is not None:
            return found
        lost = tx.row("lost_parent", child=record.seq)
        return None if lost is None else _gone(tx, record, lost[0])


def blocked_by(tx: Tx, record: Record, unsaved: Iterable[Record]) -> str | None:
    """The id of the first one."""
    if not _may_be_blocked(record):
        return None
    records.save(tx, unsaved)
    found = Blockers(tx, [record]).of(record)
    return None if found is None else found[0]


def _may_be_blocked(record: Record) -> bool:
    return record.pending > 0 and record.on_parent_failure != RUNS_ANYWAY


def _gone(tx: Tx, record: Record, position: int) -> Blocker:
    return parents_of(tx.conn, record.seq)[position], None
