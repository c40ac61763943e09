"""Submits and completions inside somebody else's transaction (contract C4.4, C7.6).

The work is done by functions of the database (migrations/0002_functions.sql, and later ones), so that a caller's driver
only has to carry texts. Whatever can be refused is refused before anything is written, and as an answer: the caller's
transaction stays usable. The exception is a completion whose lease is lost, which no transaction survives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import span_micros
from holdfast.errors import InvalidTask, SchemaMismatch, StoreUnavailable
from holdfast.model.backoff import backoff_text
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.model.transition import Settled
from holdfast.policy import refusals, repetition, workflow
from holdfast.stores.joined.callers import POSTGRESQL, Caller
from holdfast.stores.joined.recognise import caller_of
from holdfast.stores.joined.script import Ask, Script, message, sqlstate
from holdfast.stores.postgres import edges, pins, submit
from holdfast.stores.postgres.fronts import Fronts
from holdfast.stores.postgres.rows import backoff_of
from holdfast.stores.postgres.statements import is_uuid, json_text, statement

LOOKS = 10
"""How often a batch is looked at again because others keep submitting and deleting the same ids or keys."""
_FUNCTION = ".complete(text,text,text,text)"


class Joining:
    """What has to be known of a store to write in the transactions of others. Bound to no event loop."""

    def __init__(
        self, schema: str, label: str, identity: str, given: Callable[[], datetime | None], fronts: Fronts
    ) -> None:
        self._schema = schema
        self._label = label
        self._identity = identity
        self._given = given
        self._fronts = fronts

    def into(self, connection: object) -> Joined:
        caller = caller_of(connection)
        if caller.dialect != POSTGRESQL:
            raise InvalidTask(f"the connection leads to {caller.dialect} and the tasks are in {self._label}")
        return Joined(self, caller)

    def submit(self, tasks: Sequence[NewTask]) -> Script[list[Submitted]]:
        xid = yield from self._probe()
        answers, fresh = repetition.admitted(tasks, by_id=_nobody, by_key=_nobody)
        for _ in range(LOOKS):
            known = yield from self._call("joined_submit", _encoded(_fields(fresh)), xid)
            if not known:
                self._fronts.submitted(fresh)  # that they are there is for surveys to see, after the commit
                return answers
            answers, fresh = _admitted(tasks, known)
            if not fresh:
                return answers
        raise self._rival()

    def complete(self, settlement: Settlement) -> Script[Settled]:
        if not is_uuid(settlement.lease.task_id):
            raise refusals.not_found(settlement.lease.task_id)
        xid = yield from self._probe()
        _, fresh = repetition.admitted(settlement.follow_ups, by_id=_nobody, by_key=_nobody)
        for _ in range(LOOKS):
            try:
                known = yield from self._call("joined_complete", _encoded(_end(settlement, fresh)), xid)
            except Exception as error:
                raise self._refused(error, settlement.lease) from error
            if not known:
                return Settled(settlement.lease.task_id, settlement.lease.attempt, TaskStatus.COMPLETED)
            _, fresh = _admitted(settlement.follow_ups, known)
        raise self._rival()

    def _probe(self) -> Script[str]:
        """The number of the caller's transaction."""
        rows = yield Ask(statement(self._schema, "joined_probe"), (self._schema + _FUNCTION,))
        ours, xid = rows[0]
        if not ours:
            raise SchemaMismatch(
                f"the connection's database has no Holdfast in schema {self._schema}; hand in a connection to "
                f"{self._label}, or run `holdfast migrate` there; nothing was written"
            )
        return str(xid)

    def _call(self, name: str, what: str, xid: str) -> Script[list[dict[str, Any]]]:
        """The tasks that are in the way; empty when it is done."""
        given = self._given()
        values = (what, xid, self._identity, None if given is None else given.isoformat())
        rows = yield Ask(statement(self._schema, name), values)
        answer = msgspec.json.decode(rows[0][0])
        match answer["verdict"]:
            case "elsewhere":
                raise InvalidTask(f"the connection leads to another database than {self._label}; nothing was written")
            case "no transaction":
                raise InvalidTask(
                    "the connection has no transaction open, so there is none to join; begin one first (asyncpg: "
                    "`async with connection.transaction()`, Django: `with transaction.atomic()`); nothing was written"
                )
            case "rival":
                raise self._rival()
            case "lacking":
                raise refusals.dataset_not_found(**answer["known"])
        known: list[dict[str, Any]] = answer.get("known") or []
        return known

    def _rival(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self._label}: another open transaction holds the same idempotency key and did not end within 5 s; "
            "nothing was written: roll back and run the transaction again"
        )

    def _refused(self, error: Exception, lease: Lease) -> Exception:
        match sqlstate(error):
            case "HF404":
                return refusals.not_found(lease.task_id)
            case "HF409":
                status, _, attempt = message(error).rpartition(" ")
                why = refusals.why_lost(lease, status=TaskStatus(status.rpartition(" ")[2]), attempt=int(attempt))
                return refusals.lease_lost(lease, why)
            case "55P03" | "40P01":
                return StoreUnavailable(
                    f"{self._label}: somebody else holds a lock on task {lease.task_id} for too long"
                )
        return error


class Joined:
    """One caller's transaction."""

    def __init__(self, joining: Joining, caller: Caller) -> None:
        self._joining = joining
        self._caller = caller
        self.awaited = caller.awaited

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        submit.check(tasks)
        return self._caller.walk(self._joining.submit(tasks))

    async def asubmit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        submit.check(tasks)
        return await self._caller.awalk(self._joining.submit(tasks))

    def complete(self, settlement: Settlement) -> Settled:
        submit.check(settlement.follow_ups)
        return self._caller.walk(self._joining.complete(settlement))

    async def acomplete(self, settlement: Settlement) -> Settled:
        submit.check(settlement.follow_ups)
        return await self._caller.awalk(self._joining.complete(settlement))


def _encoded(value: object) -> str:
    try:
        return json_text(value)
    except UnicodeEncodeError:
        raise refusals.not_text() from None


def _nobody(_: str) -> None:
    return None


def _admitted(tasks: Sequence[NewTask], rows: list[dict[str, Any]]) -> tuple[list[Submitted], list[NewTask]]:
    known = [_as_submitted(row) for row in rows]
    by_id = {task.id: task for task in known}
    by_key = {task.idempotency_key: task for task in known if task.idempotency_key is not None}
    return repetition.admitted(tasks, by_id=by_id.get, by_key=by_key.get)


def _as_submitted(row: dict[str, Any]) -> NewTask:
    row["backoff"] = backoff_of(row["backoff"])
    row["parents"] = tuple(row["parents"] or ())
    row["inputs"] = pins.of_text(row["inputs"])
    return NewTask(**row)


def _fields(tasks: Sequence[NewTask]) -> list[dict[str, object]]:
    """As add_tasks() wants them."""
    dependents = workflow.dependents(tasks)
    return [_fields_of(new, dependents.get(new.id, 0)) for new in tasks]


def _fields_of(new: NewTask, dependents: int) -> dict[str, object]:
    return {
        "id": new.id,
        "name": new.name,
        "queue": new.queue,
        "priority": new.priority,
        "status": "waiting" if new.parents else "queued",
        "run_at": new.run_at,
        "delay_micros": span_micros(new.delay_seconds),
        "max_attempts": new.max_attempts,
        "backoff": backoff_text(new.backoff),
        "timeout": new.timeout,
        "lease": new.lease,
        "idempotency_key": new.idempotency_key,
        "concurrency_key": new.concurrency_key,
        "run_id": new.run_id,
        "parents": new.parents or None,
        "pending": edges.pending(new),
        "dependents": dependents,
        "bucket_size": workflow.bucket_size(len(new.parents)),
        "on_parent_failure": new.on_parent_failure,
        "fail_fast": new.fail_fast,
        "meta": new.meta,
        "inputs": pins.text_of(new),
        "pins": new.inputs,
        "payload": new.payload,
    }


def _end(settlement: Settlement, follow_ups: Sequence[NewTask]) -> dict[str, object]:
    lease, outcome = settlement.lease, settlement.outcome
    assert isinstance(outcome, Completed)
    return {
        "id": lease.task_id,
        "attempt": lease.attempt,
        "token": lease.token,
        "result": outcome.result,
        "emitted": [
            {"kind": emitted.kind, "data": json_text({"attempt": lease.attempt, **emitted.data})}
            for emitted in settlement.emitted
        ],
        "follow_ups": _fields(follow_ups),
        "outputs": [
            {
                "dataset": output.dataset,
                "mode": output.mode,
                "keys": [row.key for row in output.rows],
                "values": [row.value for row in output.rows],
            }
            for output in settlement.outputs
        ],
    }
