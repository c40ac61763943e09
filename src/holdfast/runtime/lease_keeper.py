"""Keeps the leases of what this worker holds, whatever the handlers' event loop is doing (contract C6.6).

It lives on the side loop (runtime/side_loop.py), on its own thread, with its own store handle. It only ever tells the
worker's loop something by `tell`, which is thread-safe and may be late; heartbeats must not be late, so it sends
them itself. What a handler does to the loop is the watchdog's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError
from holdfast.health import StoreHealth
from holdfast.model.claim import Claim, Extended, Lease
from holdfast.stores.protocol import TaskStore

BEAT_LONGEST_SECONDS = 5.0
"""Between two heartbeats, at most: a cancel request is noticed with one. A third of a short lease is less."""

Tell = Callable[..., object]


class Held:
    __slots__ = ("beat_at", "claim")

    def __init__(self, claim: Claim, beat_at: float) -> None:
        self.claim = claim
        self.beat_at = beat_at


class LeaseKeeper:
    def __init__(
        self, *, tell: Tell, lost: Callable[[str, str], None], cancel_requested: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self._lost = lost
        self._cancel_requested = cancel_requested
        self._held: dict[str, Held] = {}
        self._shortest_seconds = 60.0
        self._wake: Callable[[], Any] = lambda: None

    # From the worker's loop. Plain dict operations: atomic, and cheap enough for every task.

    def hold(self, claims: Sequence[Claim]) -> None:
        now = SYSTEM_CLOCK.monotonic()
        for claim in claims:
            self._held[claim.lease.token] = Held(claim, now + _interval(claim))
        shortest = min(claim.lease_seconds for claim in claims)
        if shortest < self._shortest_seconds:
            self._shortest_seconds = shortest
            self._wake()

    def drop(self, claim: Claim) -> None:
        self._held.pop(claim.lease.token, None)

    # On the side loop.

    @property
    def leases(self) -> list[Lease]:
        return [held.claim.lease for held in list(self._held.values())]

    async def run(self, store: TaskStore, health: StoreHealth) -> None:
        loop = asyncio.get_running_loop()
        shorter = asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(shorter.set)
        while True:
            try:
                async with asyncio.timeout(min(self._shortest_seconds / 6, BEAT_LONGEST_SECONDS / 2)):
                    await shorter.wait()
            except TimeoutError:
                pass
            shorter.clear()
            await health.persist(lambda: self._beat(store))

    async def _beat(self, store: TaskStore) -> None:
        now = SYSTEM_CLOCK.monotonic()
        due = [held for held in list(self._held.values()) if held.beat_at <= now]
        if not due:
            return
        answers = await store.extend([held.claim.lease for held in due])
        for held, answer in zip(due, answers, strict=True):
            self._answered(held, answer, now)

    def _answered(self, held: Held, answer: Extended | HoldfastError, now: float) -> None:
        token = held.claim.lease.token
        if isinstance(answer, HoldfastError):
            # Settled in the meantime is the usual cause: then it is no longer held, and nothing is lost.
            if self._held.pop(token, None) is not None:
                self._tell(self._lost, token, str(answer))
            return
        held.beat_at = now + _interval(held.claim)
        if answer.cancel_requested:
            self._tell(self._cancel_requested, token)


def _interval(claim: Claim) -> float:
    return min(claim.lease_seconds / 3, BEAT_LONGEST_SECONDS)
