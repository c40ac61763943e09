"""A sink that a relay serves, and how it goes with it: well, or away, and since when.

A sink that reaches nobody rests longer and longer. What it does not answer is judged by policy/silence.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from msgspec.structs import replace

from holdfast import ids
from holdfast.model.outbox import NewSink, OutboxRow
from holdfast.policy.silence import Silences
from holdfast.sinks.protocol import TELL_SECONDS, Answer, Channel, unreached

FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 1.0, 60.0
LAST_SECONDS = 2.0
"""How long a relay that is stopped waits for what it is just telling."""


class Post:
    def __init__(self, target: NewSink, to: Channel) -> None:
        self.target = target
        self._channel = to
        self.tasks: dict[bool, asyncio.Task[None]] = {}
        """What is being told: one batch, and one of rows that are told apart (True)."""
        self.silences = Silences()
        self.rests_until = 0.0
        self.away_since: float | None = None
        self._rest_seconds = 0.0

    def free(self, now: float) -> bool:
        return False not in self.tasks and self.rests_until <= now

    def apart(self, row: OutboxRow) -> bool:
        """While a sink is away nothing is told apart: any row may find that it is back."""
        return self.away_since is None and self.silences.apart(row.id)

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        try:
            async with asyncio.timeout(TELL_SECONDS):
                return await self._channel.tell(rows)
        except Exception as error:
            return [unreached(error)] * len(rows)

    def heed(
        self, rows: Sequence[OutboxRow], answers: Sequence[Answer], answers_before: int, now: float, *, apart: bool
    ) -> list[Answer]:
        """What a batch says of the sink; and of its rows, with who is to blame. Rows that are told apart say nothing of
        the sink, unless it answers them.
        """
        heard = [row for row, answer in zip(rows, answers, strict=True) if _is_heard(answer)]
        for row in heard:
            self.silences.heard(row.id)
        if heard:
            self._well()
        judged = [self._judged(row, answer, answers_before) for row, answer in zip(rows, answers, strict=True)]
        if not heard and not apart and not all(answer.blame for answer in judged):
            self._rest(now)
        if self.away_since is None:
            return judged
        return [answer if answer.blame else replace(answer, delay_seconds=self.rests_until - now) for answer in judged]

    def _judged(self, row: OutboxRow, answer: Answer, answers_before: int) -> Answer:
        if not answer.silent:
            return answer
        away = self.away_since is not None
        return replace(answer, blame=self.silences.blames(row.id, answers_before, away=away))

    def _rest(self, now: float) -> None:
        self.away_since = now if self.away_since is None else self.away_since
        self._rest_seconds = min(max(2 * self._rest_seconds, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)
        self.rests_until = now + self._rest_seconds * (0.8 + 0.2 * ids.JITTER.random())

    def _well(self) -> None:
        self.away_since, self._rest_seconds, self.rests_until = None, 0.0, 0.0

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(LAST_SECONDS):
                await self._channel.close()


def _is_heard(answer: Answer) -> bool:
    """Has the sink said something, be it a refusal?"""
    return answer.error is None or (answer.blame and not answer.silent)
