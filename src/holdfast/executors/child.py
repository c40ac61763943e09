"""The other end of executors/process.py: a process that runs handlers for a worker, one at a time, and dies with it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import queue
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from holdfast.context import CURRENT, Context
from holdfast.errors import NotSupported
from holdfast.executors import wire
from holdfast.executors.outcomes import raised, returned
from holdfast.model.claim import Lease
from holdfast.model.outcome import Failed, Outcome
from holdfast.model.output import OutputRow
from holdfast.model.workflow import Step
from holdfast.policy.error_text import error_info
from holdfast.registry import Definition
from holdfast.stores.protocol import Joining, OwnTransaction

A = TypeVar("A", bound=wire.Answer)

_namespaces: dict[str, dict[str, Any]] = {}


class _Worker:
    """The worker, as a handler's context sees it from here."""

    def __init__(self, line: wire.Line) -> None:
        self.line = line
        self.orders: queue.SimpleQueue[tuple[wire.Order, Context]] = queue.SimpleQueue()
        self.context: Context | None = None
        self._asking = threading.Lock()
        self._answers: queue.SimpleQueue[wire.Answer] = queue.SimpleQueue()

    def listen(self) -> None:
        try:
            while text := self.line.receive():
                self._heard(wire.to_child.decode(text))
        finally:
            leave()  # the worker is gone or speaks in riddles: whatever runs here has lost its lease

    def _heard(self, message: wire.ToChild) -> None:
        match message:
            case wire.Order() as order:
                # Here, not where the order is run: the next message may already ask this handler to stop.
                self.context = Context(order.claim, self)
                self.orders.put((order, self.context))
            case wire.Ask():
                if self.context is not None:
                    self.context.request_cancel()
            case _:
                self._answers.put(message)

    def _ask(self, question: wire.Asked, answered_by: type[A]) -> A:
        with self._asking:  # answers come in the order of questions, whichever thread asks
            self.line.send(question)
            answer = self._answers.get()
        if isinstance(answer, wire.Refused):
            raise answer.error()
        assert isinstance(answer, answered_by)
        return answer

    def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        self._ask(wire.Report(lease.token, kind, dict(data)), wire.Reported)

    async def areport(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self.report, lease, kind, data)

    def steps(self, lease: Lease) -> list[Step]:
        return self._ask(wire.ReadSteps(lease.token), wire.StepsRead).steps

    async def asteps(self, lease: Lease) -> list[Step]:
        return await asyncio.to_thread(self.steps, lease)

    def record_step(self, lease: Lease, name: str, result: str) -> Step:
        return self._ask(wire.RecordStep(lease.token, name, result), wire.StepRecorded).step

    async def arecord_step(self, lease: Lease, name: str, result: str) -> Step:
        return await asyncio.to_thread(self.record_step, lease, name, result)

    def pinned(self, lease: Lease) -> dict[str, int | None]:
        return self._ask(wire.ReadPins(lease.token), wire.PinsRead).versions

    async def apinned(self, lease: Lease) -> dict[str, int | None]:
        return await asyncio.to_thread(self.pinned, lease)

    def dataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]:
        return self._ask(wire.ReadRows(lease.token, dataset, version, after), wire.RowsRead).rows

    async def adataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]:
        return await asyncio.to_thread(self.dataset_rows, lease, dataset, version, after)

    def joining(self) -> Joining:
        raise NotSupported("a task cannot be completed inside a transaction from a child process; use run_in='thread'")

    async def ajoining(self) -> Joining:
        return self.joining()

    def own_transaction(self) -> OwnTransaction:
        raise NotSupported("a child process has no store to offer a transaction; use run_in='thread' or 'loop'")


def _definition(order: wire.Order) -> Definition:
    """The declared task, found where the worker's own registry says that it was declared."""
    for folder in order.search_path:
        if folder not in sys.path:
            sys.path.append(folder)
    found: Any
    if order.main_path is not None:
        if order.main_path not in _namespaces:
            _namespaces[order.main_path] = runpy.run_path(order.main_path, run_name="__holdfast_child__")
        first, *rest = order.qualname.split(".")
        found = _namespaces[order.main_path][first]
    else:
        found = importlib.import_module(order.module)
        rest = order.qualname.split(".")
    for part in rest:
        found = getattr(found, part)
    definition: Definition = found.definition
    return definition


def _run(order: wire.Order, context: Context) -> wire.Done:
    try:
        definition = _definition(order)
    except BaseException as error:
        failed = Failed(error_info(error, code="handler_not_found"))
        return wire.Done(outcome=failed, emitted=[], follow_ups=[], outputs=[])
    ended = context.settlement(_outcome(definition, context, order))
    return wire.Done(
        outcome=ended.outcome,
        emitted=context.emitted,
        follow_ups=context.follow_ups,
        outputs=list(ended.outputs),
    )


def _outcome(definition: Definition, context: Context, order: wire.Order) -> Outcome:
    CURRENT.set(context)
    try:
        args = [*order.inputs.values(), *order.args]
        value = definition.handler(*([context, *args] if definition.takes_context else args), **order.kwargs)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        return returned(definition, value)
    except BaseException as error:
        return raised(definition, error)


def main(descriptor: int) -> None:
    # Ctrl-C reaches the whole terminal group; the worker decides what becomes of its children.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(descriptor, False)
    worker = _Worker(wire.Line(socket.socket(fileno=descriptor)))
    threading.Thread(target=worker.listen, daemon=True).start()
    pid = os.getpid()
    os.register_at_fork(after_in_child=lambda: _unplug(descriptor))
    while True:
        done = _run(*worker.orders.get())
        if os.getpid() != pid:
            os._exit(0)  # a copy that the handler forked and let return: the answer is the original's to give
        if not worker.line.send(done):
            leave()


def leave() -> NoReturn:
    """End this process and what its handlers started; the executor made it the head of a group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _unplug(descriptor: int) -> None:
    """In what a handler forks: an open copy of the line would hide this process's death from the worker."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


if __name__ == "__main__":
    main(int(sys.argv[1]))
