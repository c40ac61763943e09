"""New tasks: all of a batch or none (contract section 4).

Ids and keys are nearly always new, so a batch is first inserted and only looked at more closely if SQLite finds one
of them taken.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby

import msgspec

from holdfast.clock import span_micros, to_micros
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.policy import repetition, workflow
from holdfast.stores.sqlite import datasets
from holdfast.stores.sqlite.apart import APART, parents_of, payload_apart
from holdfast.stores.sqlite.rows import APART_CHARS, inputs_text, pins_of, policy_of, policy_text
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Tx

COLUMNS = (
    "seq, id, name, queue, priority, status, run_at, max_attempts, policy, created_at, idempotency_key, "
    "concurrency_key, run_id, parents, on_parent_failure, meta, payload"
)
LINKED_COLUMNS = f"{COLUMNS}, pending, dependents, delay, fail_fast, inputs"
"""Of a batch that holds a workflow, or tasks that read datasets."""
CHUNKS = (512, 64, 8, 1)
"""Rows per statement: few steps for many rows (see statements.json_param), few statements to keep prepared."""


class _Known(msgspec.Struct, array_like=True, gc=False):
    seq: int
    id: str
    name: str
    queue: str
    payload: str | None
    priority: int
    max_attempts: int
    policy: str
    idempotency_key: str | None
    concurrency_key: str | None
    run_id: str | None
    parents: str | None
    on_parent_failure: str
    fail_fast: str | None
    meta: str | None
    inputs: str | None


_known_decoder = msgspec.json.Decoder(list[_Known])


def submit(tx: Tx, tasks: Sequence[NewTask]) -> list[Submitted]:
    workflow.check(tasks)
    answers = [Submitted(new.id, created=True) for new in tasks]
    inserted = None if any(new.inputs for new in tasks) else _inserted(tx, tasks)
    if inserted is None:
        answers, fresh = admitted(tx, tasks)
        if not fresh:
            return answers
        inserted = _insert(tx, fresh)
    first, last = inserted
    tx.run("enqueued_events", first=first, last=last, now=tx.now)
    return answers


def _inserted(tx: Tx, tasks: Sequence[NewTask]) -> tuple[int, int] | None:
    """None where an id or a key is taken; then nothing is inserted."""
    try:
        return _insert(tx, tasks)
    except sqlite3.IntegrityError:
        return None


def add(tx: Tx, tasks: Sequence[NewTask]) -> None:
    """Tasks that were admitted; their events take their place among those of the verb."""
    if tasks:
        first, last = _insert(tx, tasks)
        for seq in range(first, last + 1):
            tx.note_plain(seq, 0, "task.enqueued", "client")


def admitted(tx: Tx, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
    """The answers and the tasks that are new, or the refusal of all of them; nothing is written yet."""
    if not tasks:
        return [], []
    by_id, by_key = _taken(tx, tasks)
    answers, fresh = repetition.admitted(tasks, by_id=by_id.get, by_key=by_key.get)
    datasets.check_pins(tx, fresh)
    return answers, fresh


def _taken(tx: Tx, tasks: Sequence[NewTask]) -> tuple[dict[str, NewTask], dict[str, NewTask]]:
    ids = [new.id for new in tasks]
    keys = [new.idempotency_key for new in tasks if new.idempotency_key is not None]
    found = _known_decoder.decode(tx.row("known", ids=json_param(ids), keys=json_param(keys))[0])
    known = [_as_submitted(tx, row) for row in found]
    return (
        {task.id: task for task in known},
        {task.idempotency_key: task for task in known if task.idempotency_key is not None},
    )


def _as_submitted(tx: Tx, row: _Known) -> NewTask:
    policy = policy_of(row.policy)
    return NewTask(
        id=row.id,
        name=row.name,
        payload=payload_apart(tx.conn, row.seq) if row.payload is None else row.payload,
        queue=row.queue,
        priority=row.priority,
        max_attempts=row.max_attempts,
        backoff=policy.backoff,
        timeout=policy.timeout,
        lease=policy.lease,
        idempotency_key=row.idempotency_key,
        concurrency_key=row.concurrency_key,
        run_id=row.run_id,
        parents=() if row.parents is None else tuple(parents_of(tx.conn, row.seq)),
        on_parent_failure=row.on_parent_failure,
        fail_fast=row.fail_fast,
        meta=row.meta,
        inputs=pins_of(row.inputs),
    )


def _insert(tx: Tx, tasks: Sequence[NewTask]) -> tuple[int, int]:
    """Insert all, or raise IntegrityError with nothing inserted. The first and the last seq."""
    first = tx.conn.execute("SELECT coalesce(max(seq), 0) + 1 FROM holdfast_tasks").fetchone()[0]
    linked = any(new.parents or new.fail_fast or new.inputs for new in tasks)
    dependents = workflow.dependents(tasks) if linked else {}
    try:
        for start, size in _chunks(len(tasks)):
            values: list[object] = []
            for seq, new in enumerate(tasks[start : start + size], first + start):
                values += _row(seq, new, tx.now)
                if linked:
                    values += _links(new, dependents)
            tx.conn.execute(_insert_sql(LINKED_COLUMNS if linked else COLUMNS, size), values)
    except sqlite3.IntegrityError:
        tx.conn.execute("DELETE FROM holdfast_tasks WHERE seq >= ?", (first,))
        raise
    apart = [(seq, new.payload) for seq, new in enumerate(tasks, first) if len(new.payload) > APART_CHARS]
    if apart:
        tx.conn.executemany("INSERT INTO holdfast_payloads VALUES (?, ?)", apart)
    if linked:
        _link(tx, tasks, first)
        datasets.pin(tx, tasks, first)
    _enter(tx, tasks)
    return first, first + len(tasks) - 1


def _links(new: NewTask, dependents: Mapping[str, int]) -> tuple[object, ...]:
    delay = span_micros(new.delay_seconds) if new.run_at is None else None
    return len(new.parents), dependents.get(new.id, 0), delay, new.fail_fast, inputs_text(new.inputs)


def _link(tx: Tx, tasks: Sequence[NewTask], first: int) -> None:
    seqs = {new.id: seq for seq, new in enumerate(tasks, first)}
    edges = []
    for new in tasks:
        child = seqs[new.id]
        edges += [(seqs[parent], child, position) for position, parent in enumerate(new.parents)]
        if _long(new.parents):
            tx.conn.execute("INSERT INTO holdfast_parents VALUES (?, ?)", (child, json_param(new.parents)))
    if edges:
        tx.run("link", edges=json_param(edges))


def _row(seq: int, new: NewTask, now: int) -> tuple[object, ...]:
    run_at = new.run_at
    return (
        seq,
        new.id,
        new.name,
        new.queue,
        new.priority,
        "waiting" if new.parents else "queued",
        now + span_micros(new.delay_seconds) if run_at is None else to_micros(run_at),
        new.max_attempts,
        policy_text(new.backoff, new.timeout, new.lease),
        now,
        new.idempotency_key,
        new.concurrency_key,
        new.run_id,
        _parents_text(new.parents) if new.parents else None,
        new.on_parent_failure,
        new.meta,
        new.payload if len(new.payload) <= APART_CHARS else None,
    )


def _parents_text(parents: Sequence[str]) -> str:
    return APART if _long(parents) else json_param(parents)


def _long(parents: Sequence[str]) -> bool:
    return sum(map(len, parents)) > APART_CHARS


def _chunks(count: int) -> Iterable[tuple[int, int]]:
    start = 0
    for size in CHUNKS:
        while count - start >= size:
            yield start, size
            start += size


@cache
def _insert_sql(columns: str, rows: int) -> str:
    row = f"({', '.join('?' * (columns.count(',') + 1))})"
    return f"INSERT INTO holdfast_tasks ({columns}) VALUES {', '.join([row] * rows)}"  # noqa: S608  no data in it


def _enter(tx: Tx, tasks: Sequence[NewTask]) -> None:
    """The queues know of them."""
    for (queue, waits), members in groupby(tasks, key=lambda new: (new.queue, bool(new.parents))):
        status = TaskStatus.WAITING if waits else TaskStatus.QUEUED
        tx.counts[queue, status] += sum(1 for _ in members)
        if queue not in tx.known_queues and queue not in tx.new_queues:
            tx.conn.execute("INSERT OR IGNORE INTO holdfast_queues (name) VALUES (?)", (queue,))
            tx.new_queues.add(queue)
    tx.wakes = True
