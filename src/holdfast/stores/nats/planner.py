"""The memory store's acts, on a replica that does not know every task, in steps that the server takes."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import NotSupported
from holdfast.model.claim import Lease
from holdfast.model.task import NewTask, Submitted
from holdfast.policy.backoff import Rng
from holdfast.stores.memory.acts import Acts
from holdfast.stores.memory.advancing import Advancing
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.specs import Known

FULL = 650
"""Of the thousand messages of a step; what each of the last ones leaves to be done takes one more, and so may the place
where its task is looked for."""


class BoundedAdvancing(Advancing):
    def __init__(self, replica: Replica) -> None:
        super().__init__(replica)
        self._replica = replica

    def _full(self) -> bool:
        return self._replica.size >= FULL


class Planner(Acts):
    def __init__(self, replica: Replica, rng: Rng) -> None:
        super().__init__(replica, rng)
        self._advancing = BoundedAdvancing(replica)
        self.known = Known()

    def _admitted(self, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
        answers, fresh = super()._admitted(tasks)
        ensure_no_inputs(fresh)
        return answers, fresh

    def known_id(self, task_id: str) -> NewTask | None:
        return self.known.by_id.get(task_id)

    def known_key(self, key: str) -> NewTask | None:
        return self.known.by_key.get(key)

    def hold(self, lease: Lease, now: int) -> None:
        """Nothing changes, but it is written that this lease was current."""
        self._state.touch(self._held(lease, now))


def ensure_no_inputs(tasks: Sequence[NewTask]) -> None:
    if any(new.inputs for new in tasks):
        raise NotSupported("the NATS store keeps no outputs, so there is none to read")
