"""Random lives, the same for every store and every run: many acts, most of them allowed, some not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TypeVar

from holdfast.errors import HoldfastError
from holdfast.model.claim import Lease
from holdfast.model.transition import Change
from holdfast.testing.conformance.promise import OUTCOMES
from holdfast.testing.conformance.subject import Subject

T = TypeVar("T")


class Dice:
    """A linear congruential generator: repeatable over Python versions, and good enough to pick acts with."""

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def pick(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]


async def random_life(subject: Subject, seed: int, *, steps: int = 60, delete: bool = False) -> AsyncIterator[str]:
    """Acts on a handful of tasks, one per step; yields the id of the task that was acted on."""
    dice = Dice(seed)
    tasks = [await subject.submit(max_attempts=dice.below(4), priority=dice.below(3)) for _ in range(4)]
    leases = {task_id: Lease(task_id, 1, "guess") for task_id in tasks}
    changes = [change for change in Change if delete or change is not Change.DELETE]
    for _ in range(steps):
        task_id = dice.pick(tasks)
        with suppress(HoldfastError):
            match dice.below(8):
                case 0 | 1 | 2:
                    leases[task_id] = (await subject.claim(task_id)).lease
                case 3 | 4:
                    await subject.settle(leases[task_id], dice.pick(OUTCOMES))
                case 5:
                    await subject.amend(dice.pick(changes), task_id)
                case 6:
                    subject.clock.advance(dice.pick((0.5, 5.0, 30.0, 60.0)))
                    await subject.reap()
                case 7:
                    await subject.progress(leases[task_id])
        yield task_id
