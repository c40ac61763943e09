"""Runs coroutine functions on the worker's event loop, each in a task and a context of its own."""

from __future__ import annotations

import asyncio

from holdfast.context import CURRENT
from holdfast.executors.outcomes import raised, returned
from holdfast.executors.protocol import Ended, Job


class CoroutineExecutor:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self, job: Job, ended: Ended) -> None:
        job.handle = self._loop.create_task(_run(job, ended))

    def stop(self, job: Job) -> bool:
        # Not at once: a task that is canceled before its first step never enters _run, and would never be said to end.
        self._loop.call_soon(job.handle.cancel)
        return True

    def ask(self, job: Job) -> None:
        job.context.request_cancel()
        self.stop(job)

    def close(self) -> None:
        pass


async def _run(job: Job, ended: Ended) -> None:
    definition = job.definition
    CURRENT.set(job.context)  # in the context that this asyncio task has for itself
    try:
        args = job.arguments() if job.inputs.light else await asyncio.to_thread(job.arguments)
        value = await definition.handler(*args, **job.kwargs)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of a handler must not end the worker
        ended(raised(definition, error))
    else:
        ended(returned(definition, value))
