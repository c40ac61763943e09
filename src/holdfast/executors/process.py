"""Runs handlers in child processes, which can really be killed.

A child is a fresh interpreter (executors/child.py), spoken to over a socket pair. It runs one handler at a time and is
kept for reuse. A thread per busy child does the blocking reads. A child ends when its socket does, so that a worker
killed with -9 leaves none behind. It heads a process group, so that what a handler starts is killed along with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading

from holdfast.errors import HoldfastError, LeaseLost
from holdfast.executors import wire
from holdfast.executors.protocol import Ended, Job
from holdfast.model.outcome import ErrorInfo, Failed, Outcome
from holdfast.policy.error_text import error_info


class ProcessExecutor:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._idle: list[_Child] = []
        self._busy: set[_Child] = set()
        self._closed = False

    def start(self, job: Job, ended: Ended) -> None:
        threading.Thread(target=self._serve, args=(job, ended), name="holdfast-process", daemon=True).start()

    def stop(self, job: Job) -> bool:
        job.context.request_cancel()
        with self._lock:
            child: _Child | None = job.handle
            if child is not None:
                child.kill()
        return True

    def ask(self, job: Job) -> None:
        job.context.request_cancel()
        with self._lock:
            child: _Child | None = job.handle
            if child is not None:
                child.ask()

    def close(self) -> None:
        with self._lock:
            idle, busy = list(self._idle), list(self._busy)
            self._idle.clear()
            self._closed = True
        for child in idle:
            child.kill()
            child.bury()
        for child in busy:
            child.kill()  # its thread buries it

    def _serve(self, job: Job, ended: Ended) -> None:
        outcome = self._run(job)
        try:
            self._loop.call_soon_threadsafe(ended, outcome)
        except RuntimeError:
            return  # the loop has closed: the worker is gone, and with it the lease

    def _run(self, job: Job) -> Outcome:
        try:
            with self._lock:
                child = self._idle.pop() if self._idle else _Child()
                self._busy.add(child)
                # Under the lock: stop() either finds the child here, or has left its mark in the context before.
                job.handle = child
                if job.context.cancel_requested:
                    child.kill()
        except OSError as error:
            return Failed(error_info(error, code="process_not_started"))
        try:
            outcome = child.run(job)
        except Exception as error:  # a handler that wrote on the line itself, or something that no message can carry
            child.kill()
            outcome = Failed(error_info(error, code="process_broke"))
        with self._lock:
            job.handle = None
            self._busy.discard(child)
            reusable = child.alive and not self._closed
            if reusable:
                self._idle.append(child)
        if not reusable:
            child.kill()
            child.bury()
        return outcome


class _Child:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  our own module, our own descriptor
                [sys.executable, "-m", "holdfast.executors.child", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )
        self._line = wire.Line(ours)
        self._killed = False

    @property
    def alive(self) -> bool:
        return not self._killed and self._process.poll() is None  # one just killed may take a moment to die

    def kill(self) -> None:
        """With all that its handler started. Not once it is known to be dead: its number may be another's by then."""
        if self.alive:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def bury(self) -> None:
        self._line.close()
        self._process.wait()

    def ask(self) -> None:
        self._line.send(wire.Ask())

    def run(self, job: Job) -> Outcome:
        self._line.send(_order(job))
        while text := self._line.receive():
            match wire.from_child.decode(text):
                case wire.Done() as done:
                    job.context.emitted.extend(done.emitted)
                    job.context.follow_ups.extend(done.follow_ups)
                    for output in done.outputs:
                        job.context.written.add(output)
                    return done.outcome
                case asked:
                    self._line.send(_answer(job, asked))
        return Failed(ErrorInfo(_obituary(self._process.wait()), "process_died"))


def _order(job: Job) -> wire.Order:
    handler = job.definition.handler
    module, main_path = handler.__module__, None
    if module == "__main__":
        module, main_path = wire.main_origin()
    return wire.Order(
        module=module,
        main_path=main_path,
        qualname=handler.__qualname__,
        search_path=sys.path,
        claim=job.claim,
        inputs=job.inputs,
        args=job.args,
        kwargs=job.kwargs,
    )


def _answer(job: Job, asked: wire.Asked) -> wire.Answer:
    lease, reporter = job.claim.lease, job.context.reporter
    if asked.token != lease.token:
        return wire.Refused(LeaseLost.code, "the attempt that asks has ended; its lease is gone")
    try:
        match asked:
            case wire.Report(_, kind, data):
                reporter.report(lease, kind, data)
                return wire.Reported()
            case wire.ReadSteps():
                return wire.StepsRead(reporter.steps(lease))
            case wire.RecordStep(_, name, result):
                return wire.StepRecorded(reporter.record_step(lease, name, result))
            case wire.ReadPins():
                return wire.PinsRead(reporter.pinned(lease))
            case wire.ReadRows(_, dataset, version, after):
                return wire.RowsRead(reporter.dataset_rows(lease, dataset, version, after))
    except HoldfastError as refused:
        return wire.Refused(refused.code, str(refused))


def _obituary(code: int) -> str:
    if code < 0:
        return f"the handler's process was killed by signal {-code}"
    return f"the handler's process ended with exit code {code} before it answered"
