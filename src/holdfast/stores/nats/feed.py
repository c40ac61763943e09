"""Follows the stream: what is under `r`, first the last message of each subject, then every new one, in order. A first
look takes in more, which is not followed: of live tasks those who follow are told otherwise (bulletins.py). What was
told so before may be of tasks that have ended since, and counts for nothing in a first look.

An ephemeral consumer without acknowledgements. A gap, silence, or a connection that was away ends it; the next begins
after the last message that was seen. After a long silence, or on any doubt, everything is read anew: markers of ended
tasks vanish after a while, and must not be missed.

What was written in one atomic step is handed over at once: whoever plans sees all of it or nothing. A step of our own
is passed over: who wrote it knows what is in it as soon as it is acknowledged. A message that cannot be understood is
kept in mind: whoever follows must not go on as if it were not there (unreadable.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from holdfast import ids
from holdfast.clock import boot_seconds
from holdfast.stores.nats.connection import subscribed
from holdfast.stores.nats.unreadable import NOT_UNDERSTOOD
from holdfast.stores.nats.wire import COMMIT, STEP, Wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

HEARTBEAT_SECONDS = 1.0
SILENCE_SECONDS = 4.0
FORGET_SECONDS = 20.0
"""Away for longer, everything is read anew; well below the time for which an ended task leaves a marker."""
RETRY_SECONDS = 0.2

Seen = Callable[[str, bytes, int], None]
"""Subject, body, sequence."""


class Feed:
    def __init__(
        self,
        wire: Wire,
        stream: str,
        subjects: tuple[str, ...],
        seen: Seen,
        anew: Callable[[], None],
        *,
        first: tuple[str, ...] = (),
    ) -> None:
        self._wire = wire
        self._stream = stream
        self._subjects = subjects
        self._first = first
        self.looks_first = False
        """Until all that there was has been seen, whatever interrupts it."""
        self._seen = seen
        self._anew = anew
        self._subscription: Subscription | None = None
        self._name = self._consumer = ""
        """Whose messages are wanted; which one there is."""
        self._expected = 1
        self._delivered = 0
        """By all consumers so far."""
        self._held: list[tuple[str, bytes, int]] = []
        self._step: str | None = None
        self._own: set[str] = set()
        """Steps to be passed over when they come."""
        self._under_way: set[str] = set()
        self._passed: set[str] = set()
        """Steps under way of which something was passed over."""
        self._passed_upto = 0
        self._heard = 0.0
        self._came_at = 0.0
        """When this consumer's last message came, or it was made."""
        self._task: asyncio.Task[None] | None = None
        self._disturbed = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self.last = 0
        """The sequence of the last message that was seen."""
        self.unreadable: dict[str, int] = {}
        """Messages that were not understood, by subject: where each stands."""

    # Its life

    async def start(self) -> None:
        if self._task is None:
            await self._listen()
            self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await self._end()

    def disturb(self) -> None:
        """The connection broke or came back: begin again after what was seen."""
        self._disturbed.set()

    def forget(self) -> None:
        """What was seen is in doubt: read everything anew."""
        self.last, self._name = 0, ""
        self._disturbed.set()

    # Steps of our own

    def under_way(self, step: str) -> None:
        self._own.add(step)
        self._under_way.add(step)

    def written(self, steps: set[str]) -> None:
        """Acknowledged: whoever wrote them knows what the last of them has changed."""
        self._under_way -= steps
        self._passed -= steps

    def refused(self, steps: set[str]) -> None:
        self.written(steps)
        self._own -= steps

    def unknown(self, steps: set[str]) -> None:
        """Nobody knows whether they were written: what there is of them has to be seen."""
        if steps & self._passed:
            self.forget()
        self.refused(steps)

    # Its course

    async def _watch(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    await self._disturbed.wait()
            if self._disturbed.is_set() or boot_seconds() - self._heard > SILENCE_SECONDS:
                await self._again()

    async def _again(self) -> None:
        self._disturbed.clear()
        try:
            await self._end()
            await self._listen()
        except Exception:  # whatever it is, nobody else would begin again
            self._disturbed.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def _end(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            with suppress(Exception):
                await subscription.unsubscribe()
            with suppress(Exception):
                await self._wire.api(f"CONSUMER.DELETE.{self._stream}.{self._consumer}")

    async def _listen(self) -> None:
        client = await self._wire.client()
        if not self.last or boot_seconds() - self._heard > FORGET_SECONDS:
            self.last = 0
            self.looks_first = bool(self._first)
            self.unreadable.clear()
            self._own.clear()  # a step that is passed over must not follow one that is handed over, of the same task
            self._anew()
        inbox, self._name, self._expected = client.new_inbox(), ids.token_hex(8), 1
        self._consumer = self._name
        self._held, self._step, self._passed_upto = [], None, 0
        self._came_at = boot_seconds()
        self._subscription = await subscribed(client, inbox, self._came)
        await self._wire.api(
            f"CONSUMER.CREATE.{self._stream}.{self._name}",
            {"stream_name": self._stream, "config": self._config(inbox), "action": "create"},
        )
        self._heard = boot_seconds()

    def _config(self, inbox: str) -> dict[str, Any]:
        begin: dict[str, Any] = {"deliver_policy": "last_per_subject"}
        if self.last:
            begin = {"deliver_policy": "by_start_sequence", "opt_start_seq": self.last + 1}
        return begin | {
            "name": self._name,
            "deliver_subject": inbox,
            "ack_policy": "none",
            "max_deliver": 1,
            "filter_subjects": (*self._first, *self._subjects) if self.looks_first else self._subjects,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * 1e9),
            "inactive_threshold": int(30e9),
            "mem_storage": True,
            "num_replicas": 1,
        }

    # Messages

    async def _came(self, message: Msg) -> None:
        before, self._heard = self._came_at, boot_seconds()
        self._came_at = self._heard
        if self._heard - before > FORGET_SECONDS:
            self.forget()  # we were stopped, or slept: what had a time to live may be gone without a gap
            return
        reply = message.reply
        if not reply.startswith("$JS.ACK."):
            await self._control(message)
            return
        parts = reply.split(".")
        at = 5 if len(parts) == 9 else 7
        sequence, delivered = int(parts[at]), int(parts[at + 1])
        if parts[at - 2] != self._name:
            return  # of a consumer that is given up
        if delivered != self._expected:
            self.disturb()
            return
        self._expected += 1
        self._delivered += 1
        headers = message.headers or {}
        step = headers.get(STEP)
        if step != self._step:
            self._hand_over()  # the end of the one before is gone: there is something newer in its place
        self._step = step
        if step in self._own:
            self._pass_over(str(step), sequence)
        else:
            self._held.append((message.subject, message.data, sequence))
        if step is None or COMMIT in headers:
            self._hand_over()
            if self.looks_first and parts[at + 3] == "0":
                self._look_on()

    def _look_on(self) -> None:
        """All that there was has been seen: from here on it is enough to be told."""
        self.looks_first = False
        self.disturb()

    def _pass_over(self, step: str, sequence: int) -> None:
        self._passed_upto = sequence
        if step in self._under_way:
            self._passed.add(step)

    def _hand_over(self) -> None:
        held, self._held = self._held, []
        for subject, body, sequence in held:
            self.hand(subject, body, sequence)
            self.last = sequence
        if self._passed_upto:
            self.last, self._passed_upto = self._passed_upto, 0
            self._own.discard(str(self._step))
        if self._waiters:
            self._tell()

    def hand(self, subject: str, body: bytes, sequence: int) -> None:
        """One that is not understood keeps nobody from getting the others."""
        self.unreadable.pop(subject, None)
        try:
            self._seen(subject, body, sequence)
        except NOT_UNDERSTOOD:
            self.unreadable[subject] = sequence

    async def _control(self, message: Msg) -> None:
        """A heartbeat; or the server asks whether what it has sent was read."""
        headers = message.headers or {}
        if int(headers.get("Nats-Last-Consumer", 0)) >= self._expected:
            self.disturb()  # the last that was sent has not come
        wanted = message.reply or headers.get("Nats-Consumer-Stalled")
        if wanted:
            with suppress(Exception):  # on a connection that has just gone there is nobody to tell
                await (await self._wire.client()).publish(wanted)

    def _tell(self) -> None:
        left = []
        for sequence, future in self._waiters:
            if sequence > self.last:
                left.append((sequence, future))
            elif not future.done():
                future.set_result(None)
        self._waiters = left

    async def reached(self, sequence: int, seconds: float) -> bool:
        """Whether all up to there was seen, unless nothing comes for so long. A first look at much takes longer."""
        if self.last >= sequence:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((sequence, future))
        while not future.done():
            so_far = self._delivered
            await asyncio.wait({future}, timeout=seconds)
            if not future.done() and so_far == self._delivered:
                future.cancel()
                return False
        return True
