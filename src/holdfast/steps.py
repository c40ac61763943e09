"""Steps: parts of a handler whose results are recorded once per task, so that a later attempt need not repeat them
(contract C10.7); and sleeping, which is a step that ends the attempt until its time is over.

    attempt 1   charge ──recorded──► ship ──dies
    attempt 2   charge (as recorded) ──► ship ──recorded──► sleep ──recorded──► snoozed
    attempt 3   charge, ship (as recorded), sleep (over) ──► completed

What an attempt finds recorded is read once, at its first step. A record whose name the code no longer has is left
alone. Every write is fenced by the store.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from holdfast.errors import InvalidTask
from holdfast.model.claim import Claim, Lease
from holdfast.model.workflow import Step
from holdfast.policy.admission import checked_name, json_text
from holdfast.portal import in_event_loop
from holdfast.settings import Span, seconds
from holdfast.signals import Sleeping

RESERVED = "holdfast."
SLEEP = f"{RESERVED}sleep."
MILLISECOND = timedelta(milliseconds=1)


class Recorder(Protocol):
    """How steps reach the store. The plain forms are for plain code only."""

    def steps(self, lease: Lease) -> list[Step]: ...

    async def asteps(self, lease: Lease) -> list[Step]: ...

    def record_step(self, lease: Lease, name: str, result: str) -> Step:
        """The recorded one, which may be an earlier one; LeaseLost if the lease is not current."""

    async def arecord_step(self, lease: Lease, name: str, result: str) -> Step: ...


class Steps:
    """Of one attempt."""

    def __init__(self, claim: Claim, recorder: Recorder) -> None:
        self._claim = claim
        self._recorder = recorder
        # A first attempt finds nothing: whatever is recorded was recorded by an earlier one.
        self._known: dict[str, Step] | None = {} if claim.lease.attempt == 1 else None
        self._reading = asyncio.Lock()
        self._taken: set[str] = set()
        self._sleeps = 0

    # Steps

    def call(self, name: str, function: Callable[[], Any]) -> Any:
        if in_event_loop():
            raise RuntimeError("ctx.step() would block the event loop; use `await ctx.astep(…)` here")
        with self._taking(_own(name)):
            step = self._recorded().get(name)
            if step is None:
                step = self._record(name, _text(name, _plain(name, function())))
            return msgspec.json.decode(step.result)

    async def acall(self, name: str, function: Callable[[], Any]) -> Any:
        with self._taking(_own(name)):
            step = (await self._arecorded()).get(name)
            if step is None:
                value = function()
                step = await self._arecord(name, _text(name, await value if inspect.isawaitable(value) else value))
            return msgspec.json.decode(step.result)

    # Sleeping

    def sleep(self, span: Span, name: str | None) -> Awaitable[None]:
        """In an event loop something to await; in plain code it has slept when this returns."""
        if in_event_loop():
            return self.asleep(span, name)
        length = seconds(span, what="the length of a sleep")
        with self._taking(self._sleep_name(name)) as taken:
            step = self._recorded().get(taken)
            if step is None:
                raise _until_over(self._record(taken, _text(taken, length)))
            self._wake(step)
        return Slept()

    async def asleep(self, span: Span, name: str | None) -> None:
        length = seconds(span, what="the length of a sleep")
        with self._taking(self._sleep_name(name)) as taken:
            step = (await self._arecorded()).get(taken)
            if step is None:
                raise _until_over(await self._arecord(taken, _text(taken, length)))
            self._wake(step)

    def _sleep_name(self, name: str | None) -> str:
        if name is not None:
            return _own(name)
        self._sleeps += 1
        return f"{SLEEP}{self._sleeps}"

    def _wake(self, step: Step) -> None:
        """Go on if it was over when this attempt was claimed. By then, not by now: every look gives the same answer."""
        left = step.at + timedelta(seconds=_length(step)) - self._claim.claimed_at
        if left > timedelta(0):
            raise Sleeping(_rounded_up(left))

    # What is recorded

    @contextmanager
    def _taking(self, name: str) -> Iterator[str]:
        """A step that raised has recorded nothing: it may be called again."""
        if name in self._taken:
            raise InvalidTask(
                f"step {name!r} is there twice in one attempt of task {self._claim.task_id} ({self._claim.name}); "
                f"give every step a name of its own, such as {name + '.2'!r}"
            )
        self._taken.add(name)
        try:
            yield name
        except BaseException:
            self._taken.discard(name)
            raise

    def _recorded(self) -> dict[str, Step]:
        if self._known is None:
            self._known = _by_name(self._recorder.steps(self._claim.lease))
        return self._known

    async def _arecorded(self) -> dict[str, Step]:
        async with self._reading:
            if self._known is None:
                self._known = _by_name(await self._recorder.asteps(self._claim.lease))
            return self._known

    def _record(self, name: str, result: str) -> Step:
        return self._recorder.record_step(self._claim.lease, name, result)

    async def _arecord(self, name: str, result: str) -> Step:
        return await self._recorder.arecord_step(self._claim.lease, name, result)


class Slept:
    """What a sleep that is over gives: nothing, also when awaited."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield from ()


def _own(name: str) -> str:
    """A name that is the handler's to give."""
    checked_name(name, what="the step name")
    if name.startswith(RESERVED):
        raise InvalidTask(f"step name {name!r}: names that start with {RESERVED} are Holdfast's own")
    return name


def _plain(name: str, value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()
        raise InvalidTask(
            f"step {name!r} is a coroutine, which plain code cannot await; use an async handler and astep"
        )
    return value


def _text(name: str, value: Any) -> str:
    return json_text(value, what=f"the result of step {name!r}")


def _by_name(steps: list[Step]) -> dict[str, Step]:
    return {step.name: step for step in steps}


def _length(step: Step) -> float:
    """Of a recorded sleep; the code may since have given the name of another step to it."""
    try:
        return seconds(msgspec.json.decode(step.result), what="its length")
    except InvalidTask:
        raise InvalidTask(
            f"step {step.name!r} was recorded with {step.result[:40]}, which is no sleep; give the sleep another name"
        ) from None


def _until_over(step: Step) -> Sleeping:
    """Of a sleep that begins now."""
    return Sleeping(_rounded_up(timedelta(seconds=_length(step))))


def _rounded_up(left: timedelta) -> float:
    """In whole milliseconds, as a snooze counts: rounded down, the task would be back before its sleep is over."""
    return -(-left // MILLISECOND) / 1000
