"""New tasks: all of a batch or none (contract section 4).

Ids and keys are nearly always new, so a batch is first inserted in one statement and only looked at more closely if
PostgreSQL finds one of them taken. A large batch is copied in, which costs half; then its events follow in a second
statement of the same transaction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg

from holdfast.clock import span_micros
from holdfast.errors import InvalidTask
from holdfast.model.backoff import backoff_text
from holdfast.model.task import NewTask, Submitted
from holdfast.policy import repetition, workflow
from holdfast.stores.postgres import edges, pins
from holdfast.stores.postgres.fronts import Queued
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import backoff_of
from holdfast.stores.postgres.statements import is_uuid, literal, uuids
from holdfast.stores.postgres.topics import News

Taken = asyncpg.UniqueViolationError
# What is known may have been committed by a call that gave up waiting for a standby: on this server it is seen, and is
# lost if the standby takes over. A commit that has written something waits for all that came before it.
_WRITES = "SELECT pg_catalog.pg_logical_emit_message(true, 'holdfast', '')"
LARGE = 200
"""From so many on a batch is copied in."""
COPIED = (
    "created_at", "id", "name", "queue", "priority", "status", "run_at", "max_attempts", "backoff", "timeout", "lease",
    "idempotency_key", "concurrency_key", "run_id", "fail_fast", "on_parent_failure", "meta", "payload", "inputs",
    "parents", "pending", "dependents", "delay_micros",
)  # fmt: skip
PLAIN = ("created_at", "run_at", "status", "id", "name", "queue", "priority", "max_attempts", "backoff", "payload")
"""What a task has that has nothing else; the table knows the rest."""
LOOKS = 10
"""How often a batch is looked at again because others keep submitting and deleting the same ids or keys."""


def check(tasks: Sequence[NewTask]) -> None:
    workflow.check(tasks)
    pins.check(tasks)
    ids = [new.id for new in tasks]
    if len(uuids(ids)) < len(ids):
        odd = next(one for one in ids if not is_uuid(one))
        raise InvalidTask(f"task id {odd!r} is not a UUID in lower-case text; leave the making of ids to Holdfast")


async def submit(session: Session, tasks: Sequence[NewTask], news: News | None = None) -> bool | None:
    """Raises Taken, with nothing inserted, where an id or a key is known; submit_known() is for those.

    `news` may be told with the commit of one task: then the answer is whether anybody hears it.
    """
    if len(tasks) == 1 and tasks[0].run_at is None and not tasks[0].inputs:
        row = _row(tasks[0], span_micros(tasks[0].delay_seconds))
        name = "submit_one" if news is None else "submit_and_tell"
        heard: bool | None = await session.value(name, session.given, *row, *(news or ()))
        return heard
    try:
        await _submit_many(session, tasks)
    except pins.Lacking:
        raise await pins.refusal(session, tasks) from None
    return None


async def _submit_many(session: Session, tasks: Sequence[NewTask]) -> None:
    if len(tasks) >= LARGE and not any(new.idempotency_key for new in tasks):
        await _copy(session, tasks)
    elif any(new.parents or new.inputs for new in tasks):
        async with session.conn.transaction():
            await _insert(session, tasks, session.given)
    else:
        await _insert(session, tasks, session.given)


async def submit_known(session: Session, tasks: Sequence[NewTask]) -> list[Submitted]:
    """For a batch of which something may be known; inside a transaction, which a refusal undoes."""
    answers, fresh = await add(session, tasks, session.given)
    if not fresh:
        await session.conn.fetchval(_WRITES)
    return answers


async def add(
    session: Session, tasks: Sequence[NewTask], now: datetime | None
) -> tuple[list[Submitted], list[NewTask]]:
    """The answers, with what was new inserted; or the refusal of all of them, with nothing inserted.

    1. We look, and a key is free. 2. Somebody else submits it and commits. 3. Our insert finds it taken: look again.
    """
    for _ in range(LOOKS):
        answers, fresh = await _admitted(session, tasks)
        try:
            async with session.conn.transaction():
                await _insert(session, fresh, now)
        except Taken:
            continue
        except pins.Lacking:
            raise await pins.refusal(session, fresh) from None
        return answers, fresh
    raise asyncpg.SerializationError("others submit and delete the same tasks")


async def _admitted(session: Session, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
    """The answers and the tasks that are new, or the refusal of all of them; nothing is written yet."""
    by_id, by_key = await _known(session, tasks)
    return repetition.admitted(tasks, by_id=by_id.get, by_key=by_key.get)


async def _known(session: Session, tasks: Sequence[NewTask]) -> tuple[dict[str, NewTask], dict[str, NewTask]]:
    keys = [new.idempotency_key for new in tasks if new.idempotency_key is not None]
    rows = await session.rows("known", [new.id for new in tasks], keys)
    known = [_as_submitted(row) for row in rows]
    return (
        {task.id: task for task in known},
        {task.idempotency_key: task for task in known if task.idempotency_key is not None},
    )


def _as_submitted(row: Any) -> NewTask:
    fields = dict(row)
    fields["backoff"] = backoff_of(fields["backoff"])
    fields["parents"] = tuple(fields["parents"] or ())
    fields["inputs"] = pins.of_text(fields["inputs"])
    return NewTask(**fields)


async def _copy(session: Session, tasks: Sequence[NewTask]) -> None:
    """Tasks without idempotency keys, which would have to be taken in their order."""
    plain = not any(map(_more_than_plain, tasks))
    waiting = Counter() if plain else Counter([new.queue for new in tasks if new.parents])
    whole = Counter([new.queue for new in tasks])
    queues = sorted(whole)
    async with session.conn.transaction():
        # The lock comes before the clock: see fronts.py.
        await session.rows("lock")
        now = session.given or await session.conn.fetchval("SELECT pg_catalog.clock_timestamp()")
        if plain:
            await session.copy("tasks", PLAIN, [_plain_row(new, now) for new in tasks])
        else:
            dependents = workflow.dependents(tasks)
            rows = [
                (
                    now,
                    *_row(new, _run_at(new, now)),
                    pins.text_of(new),
                    *edges.numbers(new, dependents),
                    _waiting_delay(new),
                )
                for new in tasks
            ]
            await session.copy("tasks", COPIED, rows)
            await edges.insert(session, tasks)
            await pins.insert(session, tasks)
            await _note_late(session, tasks, now)
        await session.rows(
            "enqueued",
            now,
            literal([new.id for new in tasks]),
            queues,
            [waiting[queue] for queue in queues],
            [whole[queue] - waiting[queue] for queue in queues],
        )


async def _note_late(session: Session, tasks: Sequence[NewTask], now: datetime) -> None:
    given = {Queued(new.queue, new.priority, new.run_at) for new in tasks if new.run_at is not None and not new.parents}
    late = sorted(queued for queued in given if queued.run_at < now)
    if late:
        await session.rows("late", *map(list, zip(*late, strict=True)))


def _more_than_plain(new: NewTask) -> object:
    return (
        new.timeout or new.lease or new.concurrency_key or new.run_id or new.meta or new.run_at
        or new.delay_seconds or new.inputs or new.on_parent_failure != "cancel"
    )  # fmt: skip


def _plain_row(new: NewTask, now: datetime) -> tuple[object, ...]:
    return (
        now, now, "queued", new.id, new.name, new.queue, new.priority, new.max_attempts, backoff_text(new.backoff),
        new.payload,
    )  # fmt: skip


def _run_at(new: NewTask, now: datetime) -> datetime:
    return new.run_at or (now + timedelta(seconds=new.delay_seconds) if new.delay_seconds else now)


def _waiting_delay(new: NewTask) -> int:
    return span_micros(new.delay_seconds) if new.parents and new.run_at is None else 0


async def _insert(session: Session, tasks: Sequence[NewTask], now: datetime | None) -> None:
    """In a transaction, where there are parents or inputs."""
    dependents = workflow.dependents(tasks)
    rows = [
        (*_row(new, new.run_at, span_micros(new.delay_seconds)), pins.text_of(new), *edges.numbers(new, dependents))
        for new in tasks
    ]
    if rows:
        await session.rows("submit", now, *map(list, zip(*rows, strict=True)))
        await edges.insert(session, tasks)
        await pins.insert(session, tasks)


def _row(new: NewTask, *due: object) -> tuple[Any, ...]:
    """`due`: its time, or its time and its delay."""
    return (
        new.id,
        new.name,
        new.queue,
        new.priority,
        "waiting" if new.parents else "queued",
        *due,
        new.max_attempts,
        backoff_text(new.backoff),
        new.timeout,
        new.lease,
        new.idempotency_key,
        new.concurrency_key,
        new.run_id,
        new.fail_fast,
        new.on_parent_failure,
        new.meta,
        new.payload,
    )
