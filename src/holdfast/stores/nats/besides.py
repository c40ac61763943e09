"""What a change writes besides its tasks: that their queues exist, where ended ones are to be looked for, how many.

Each handle counts in a tally of its own, so that nobody waits for anybody; its changes that count follow one another.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast import ids
from holdfast.stores.nats.changes import Changes, Rule, Tally, added
from holdfast.stores.nats.images import encode
from holdfast.stores.nats.messages import Plan
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.subjects import head_of


class Noted(NamedTuple):
    heads: set[str]
    counts: bool
    """It changes one's own tally."""


class Besides:
    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._counts_as = ids.token_hex(8)
        """Under which name it tallies what it ends."""
        self.counting = False
        """A change is under way that counts."""

    def add(self, changes: Changes, plan: Plan) -> Noted:
        self._add_queues(changes, plan)
        heads = self._add_heads(changes, plan)
        counts = self._tallied(changes, plan)
        self.counting = self.counting or counts
        return Noted(heads, counts)

    def over(self, noted: Noted) -> None:
        """It is known what became of it."""
        self.counting = self.counting and not noted.counts

    def commit(self, noted: Noted, plan: Plan, last: int) -> None:
        """`last`: where the last message of the change stands."""
        self._replica.heads |= noted.heads
        for name, tally, rev in plan.tallies(last):
            self._replica.place_tally(name, tally, rev)

    def _add_queues(self, changes: Changes, plan: Plan) -> None:
        """A queue is known from its first task on."""
        for queue in {touched.record.new.queue for touched in changes.records.values() if touched.before is None}:
            if not self._replica.line_revs.get(queue) and queue not in changes.lines:
                plan.rule(queue, encode(Rule()), 0)

    def _add_heads(self, changes: Changes, plan: Plan) -> set[str]:
        """Where ended tasks are to be looked for (walk.py)."""
        ended = {task_id for task_id, touched in changes.records.items() if touched.record.status.terminal}
        heads = set(map(head_of, ended)) - self._replica.heads
        for head in sorted(heads):
            plan.head(head)
        return heads

    def _tallied(self, changes: Changes, plan: Plan) -> bool:
        """On what the stream has of ours: a write whose acknowledgement was lost may be in it."""
        counts = {place: number for place, number in changes.tallied.items() if number}
        if counts:
            name, known, rev = self.own_tally()
            plan.tally(name, added(known, counts), rev)
        return bool(counts)

    def own_tally(self) -> tuple[str, Tally, int]:
        """Its name, what it says, and where it stands.

        One that was taken away, because it had not changed for long (tallies.py), is begun anew under another name:
        the empty message in its place vanishes some time, and nobody is told when.
        """
        tally, rev = self._replica.tallies.get(self._counts_as, ({}, 0))
        if rev and not tally:
            self._counts_as, rev = ids.token_hex(8), 0
        return self._counts_as, tally, rev
