"""Submits that come while another one is being written are written together: one commit for all of them.

A submit that finds nobody at work goes its way at once. What gathers meanwhile is the next batch, so that a hundred
producers of one process cost a few commits instead of a hundred. Each call is still atomic for itself: where a batch
cannot be written as a whole, because an id or a key in it is known, an input is not, or a text is none, its calls are
made one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from holdfast.model.task import NewTask, Submitted

Write = Callable[[Sequence[NewTask]], Awaitable[list[Submitted]]]


class Waiting(NamedTuple):
    tasks: Sequence[NewTask]
    answer: asyncio.Future[list[Submitted]]


class Gathering:
    """Of one handle, so of one event loop."""

    def __init__(self, *, together: Write, alone: Write, refused: tuple[type[Exception], ...], most: int) -> None:
        self._together = together
        """Raises one of `refused`, with nothing written, where that may be because of one call only."""
        self._alone = alone
        self._refused = refused
        self._most = most
        """Calls of more tasks than this go alone; batches are not made larger."""
        self._busy = False
        self._waiting: list[Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        if len(tasks) > self._most:
            return await self._alone(tasks)
        if self._busy:
            waiting = Waiting(tasks, asyncio.get_running_loop().create_future())
            self._waiting.append(waiting)
            return await waiting.answer
        self._busy = True
        try:
            return await self._alone(tasks)
        finally:
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting:
            self._writing = asyncio.create_task(self._write_what_waits(), name="holdfast-submits")
        else:
            self._busy = False

    async def _write_what_waits(self) -> None:
        """Outlives the callers: one that is canceled takes nobody else's answer with it."""
        try:
            while self._waiting:
                await self._write(self._next_batch())
        finally:
            for waiting in self._waiting:
                waiting.answer.cancel()
            self._waiting.clear()
            self._busy = False

    def _next_batch(self) -> list[Waiting]:
        sizes = accumulate(len(waiting.tasks) for waiting in self._waiting)
        n = sum(1 for _ in takewhile(lambda size: size <= self._most, sizes))
        batch, self._waiting = self._waiting[:n], self._waiting[n:]
        return [waiting for waiting in batch if not waiting.answer.done()]

    async def _write(self, batch: list[Waiting]) -> None:
        try:
            answers = iter(await self._together([new for waiting in batch for new in waiting.tasks]))
            for waiting in batch:
                _tell(waiting, [next(answers) for _ in waiting.tasks])
        except self._refused:
            for waiting in batch:
                await self._write_alone(waiting)
        except BaseException as error:
            for waiting in batch:
                _refuse(waiting, error)
            if not isinstance(error, Exception):
                raise

    async def _write_alone(self, waiting: Waiting) -> None:
        try:
            _tell(waiting, await self._alone(waiting.tasks))
        except BaseException as error:
            _refuse(waiting, error)
            if not isinstance(error, Exception):
                raise


def _tell(waiting: Waiting, answers: list[Submitted]) -> None:
    if not waiting.answer.done():
        waiting.answer.set_result(answers)


def _refuse(waiting: Waiting, error: BaseException) -> None:
    if waiting.answer.done():
        return
    if isinstance(error, Exception):
        waiting.answer.set_exception(error)
    else:
        waiting.answer.cancel()
