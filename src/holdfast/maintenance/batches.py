"""Tells one batch of rows to one sink, and records how that went; tells people who is away, back, or given up."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.clock import Clock
from holdfast.events.bus import Bus
from holdfast.events.facts import Relayed, RowDead, RowsDead, SinkAway, SinkBack
from holdfast.health import StoreHealth
from holdfast.maintenance.posts import Post
from holdfast.maintenance.untold import give_up
from holdfast.model.outbox import Delivery, Effect, OutboxRow
from holdfast.policy.relaying import GONE_SECONDS, next_try, untold
from holdfast.sinks.protocol import Answer
from holdfast.stores.protocol import Store


class Batches:
    def __init__(self, bus: Bus, clock: Clock) -> None:
        self._bus = bus
        self._clock = clock

    async def deliver(
        self, store: Store, health: StoreHealth, post: Post, rows: Sequence[OutboxRow], hold: str, *, apart: bool
    ) -> None:
        before = post.silences.answers
        answers = self._heed(post, rows, await post.tell(rows), before, apart=apart)
        answers = await self._given_up(store, health, post, rows, answers)
        await record(store, health, rows, answers, hold)
        self._tell_ends(post, rows, answers)
        if any(answer.final and not answer.blame for answer in answers):
            await self._give_up_more(store, health, post, answers[0].error or "")

    def _heed(
        self, post: Post, rows: Sequence[OutboxRow], answers: Sequence[Answer], before: int, *, apart: bool
    ) -> list[Answer]:
        name, now, away_since = post.target.name, self._clock.monotonic(), post.away_since
        judged = post.heed(rows, answers, before, now, apart=apart)
        if post.away_since is not None and away_since is None:
            self._bus.publish(SinkAway(name, next(answer.error or "" for answer in judged if not answer.blame)))
        if post.away_since is None and away_since is not None:
            self._bus.publish(SinkBack(name, now - away_since))
        return judged

    def _tell_ends(self, post: Post, rows: Sequence[OutboxRow], answers: Sequence[Answer]) -> None:
        delivered = sum(answer.error is None for answer in answers)
        if delivered:
            self._bus.publish(Relayed(post.target.name, delivered))
        for row, answer in zip(rows, answers, strict=True):
            if answer.error is not None and next_try(row.tries, _delivery(row, "", answer)) is None:
                self._bus.publish(RowDead(post.target.name, row.id, row.task_id, answer.error))

    async def _given_up(
        self, store: Store, health: StoreHealth, post: Post, rows: Sequence[OutboxRow], answers: list[Answer]
    ) -> list[Answer]:
        """The same answers, final for what has waited long for a sink that is gone."""
        if not self._is_gone(post):
            return answers
        now = await health.persist(store.now)
        return [
            replace(answer, final=True) if not answer.blame and untold(row.created_at, now) else answer
            for row, answer in zip(rows, answers, strict=True)
        ]

    def _is_gone(self, post: Post) -> bool:
        gone = post.away_since is not None and self._clock.monotonic() - post.away_since >= GONE_SECONDS
        return gone and post.target.effect is Effect.ROUTE

    async def _give_up_more(self, store: Store, health: StoreHealth, post: Post, why: str) -> None:
        """What it was probed with has waited too long, and so, perhaps, have many more."""
        now = await health.persist(store.now)
        name = post.target.name
        number = await give_up(store, health, name, why, lambda row: untold(row.created_at, now))
        self.note_given_up(name, number, why)

    def note_given_up(self, sink: str, number: int, why: str) -> None:
        if number:
            self._bus.publish(RowsDead(sink, number, why))


async def record(
    store: Store, health: StoreHealth, rows: Sequence[OutboxRow], answers: Sequence[Answer], hold: str
) -> None:
    deliveries = [_delivery(row, hold, answer) for row, answer in zip(rows, answers, strict=True)]
    await health.persist(lambda: store.record_deliveries(deliveries))


def _delivery(row: OutboxRow, hold: str, answer: Answer) -> Delivery:
    return Delivery(
        row_id=row.id,
        hold=hold,
        error=answer.error,
        blame=answer.blame,
        final=answer.final,
        delay_seconds=answer.delay_seconds,
    )
