"""Runs plain functions in threads.

The threads are daemons and are kept for reuse. None can be ended from outside: one whose handler will not return is
simply never used again, and never waited for when the process exits.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextvars import copy_context

from holdfast.context import CURRENT
from holdfast.executors.outcomes import raised, returned
from holdfast.executors.protocol import Ended, Job
from holdfast.model.outcome import Outcome


class ThreadExecutor:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._idle: list[_Thread] = []
        self._closed = False

    def start(self, job: Job, ended: Ended) -> None:
        thread = self._idle.pop() if self._idle else _Thread(self._loop, self._rest)
        thread.work.put((job, ended))

    def stop(self, job: Job) -> bool:
        job.context.request_cancel()
        return False

    def ask(self, job: Job) -> None:
        job.context.request_cancel()

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().work.put(None)

    def _rest(self, thread: _Thread) -> None:
        if self._closed:
            thread.work.put(None)  # it outlived its worker; nobody would ever use it again
        else:
            self._idle.append(thread)


class _Thread:
    def __init__(self, loop: asyncio.AbstractEventLoop, rest: Callable[[_Thread], None]) -> None:
        self.work: queue.SimpleQueue[tuple[Job, Ended] | None] = queue.SimpleQueue()
        self._loop = loop
        self._rest = rest
        threading.Thread(target=self._serve, name="holdfast-handler", daemon=True).start()

    def _serve(self) -> None:
        while (work := self.work.get()) is not None:
            job, ended = work
            outcome = copy_context().run(_call, job)
            try:
                self._loop.call_soon_threadsafe(self._report, ended, outcome)
            except RuntimeError:
                return  # the loop has closed: the worker is gone, and with it the lease
            del work, job, ended, outcome  # or an idle thread would keep the last task's arguments alive

    def _report(self, ended: Ended, outcome: Outcome) -> None:
        self._rest(self)
        ended(outcome)


def _call(job: Job) -> Outcome:
    CURRENT.set(job.context)
    try:
        return returned(job.definition, job.definition.handler(*job.arguments(), **job.kwargs))
    except BaseException as error:  # SystemExit of a handler must not end the thread
        return raised(job.definition, error)
