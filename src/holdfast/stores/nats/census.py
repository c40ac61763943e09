"""Counts the ended tasks and reads the tallies, both as of the same moment, while others go on ending tasks.

A consumer of its own brings both in the order in which they were written. Every change of a place under `end` comes in
one atomic step with its tally. So the difference between what is there and what the tallies say does not depend on when
one looks, if one looks between two steps; and a difference that was found several times in a row is the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast import ids
from holdfast.clock import boot_seconds
from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.changes import Tally, counts_of
from holdfast.stores.nats.feed import Feed
from holdfast.stores.nats.images import decode_image
from holdfast.stores.nats.messages import MARKER_TTL
from holdfast.stores.nats.subjects import text
from holdfast.stores.nats.unreadable import unreadable
from holdfast.stores.nats.wire import Message

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

LOOKS = 3
LOOKS_MOST = 60
WAIT_SECONDS = 2.0
STALLED_SECONDS = 30.0

_tally = msgspec.msgpack.Decoder(Tally)

CORRECTION = "repair"
"""The tally that makes up for what the others have wrong. Of two who repair at once, only one writes it."""


class Look(NamedTuple):
    wrong: Counter[tuple[str, str]]
    """What the tallies lack, or have too much."""
    correction: Tally
    rev: int
    """Where that stood at the same moment."""


class Census:
    def __init__(self, ledger: Ledger, told: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._told = told
        self._mark = ledger.subjects.mark(ids.token_hex(8))
        subjects = (ledger.subjects.ends, ledger.subjects.tallies, self._mark)
        self._feed = Feed(ledger.wire, ledger.stream.name, subjects, self._seen, self._anew)
        self._found: list[Look] = []
        self._read = 0
        self._anew()

    def _anew(self) -> None:
        self.ended: set[str] = set()
        """The places that are taken."""
        self.counts: Counter[tuple[str, str]] = Counter()
        """By queue and status."""
        self.tallies: dict[str, tuple[Tally, int]] = {}
        """By handle; with where it stands."""
        self.members: dict[str, set[str]] = {}
        """By run: those that have ended, some of which may have come back or gone."""

    def _seen(self, subject: str, body: bytes, seq: int) -> None:
        self._read += 1
        rest = subject.removeprefix(f"{self._ledger.subjects.prefix}.").split(".")
        if rest[0] == "end":
            self._place(subject, taken=bool(body))
            self._note_run(subject, body)
        elif subject == self._mark:
            self._found.append(Look(self._wrong(), *self.tallies.get(CORRECTION, ({}, 0))))
        else:
            self.tallies[rest[2]] = _tally.decode(body) if body else {}, seq

    def _place(self, subject: str, *, taken: bool) -> None:
        _, status, queue, *_ = subject.removeprefix(f"{self._ledger.subjects.prefix}.").split(".")
        kind = text(queue), status
        if taken and subject not in self.ended:
            self.ended.add(subject)
            self.counts[kind] += 1
        elif not taken and subject in self.ended:
            self.ended.remove(subject)
            self.counts[kind] -= 1

    def _note_run(self, subject: str, body: bytes) -> None:
        run_id = decode_image(body).head.run_id if body else None
        if run_id is not None:
            self.members.setdefault(run_id, set()).add(self._ledger.subjects.task_of(subject))

    def _wrong(self) -> Counter[tuple[str, str]]:
        lacking = Counter(self.counts)
        for tally, _ in self.tallies.values():
            lacking.subtract(counts_of(tally))
        return Counter({kind: number for kind, number in lacking.items() if number})

    def without(self, places: Iterable[str]) -> Counter[tuple[str, str]]:
        """What would be wrong if these were not taken; from here on they are not."""
        for place in self.ended.intersection(places):
            self._place(place, taken=False)
        return self._wrong()

    async def take(self) -> Look:
        await self._feed.start()
        try:
            for _ in range(LOOKS_MOST):
                await self._look()
                for subject, seq in self._feed.unreadable.items():
                    raise unreadable(subject, seq)
                last = self._found[-LOOKS:]
                if len(last) == LOOKS and all(one.wrong == last[0].wrong for one in last):
                    return last[-1]
        finally:
            await self._feed.close()
        raise StoreUnavailable(f"{self._ledger.options.label}: the ended tasks cannot be counted at the moment")

    async def _look(self) -> None:
        """A mark that is not seen in time vanishes; then another one."""
        looks, read, since = len(self._found), self._read, boot_seconds()
        while len(self._found) == looks:
            seq = await self._ledger.wire.write([Message(self._mark, b"", None, MARKER_TTL)])
            if await self._feed.reached(seq, WAIT_SECONDS):
                continue
            self._told(f"{len(self.ended):,} ended tasks counted")
            if self._read != read:
                read, since = self._read, boot_seconds()
            elif boot_seconds() - since > STALLED_SECONDS:
                raise StoreUnavailable(f"{self._ledger.options.label}: the stream cannot be followed at the moment")
