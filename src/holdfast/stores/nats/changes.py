"""What an act has touched on a replica, as it was before: what has to be written, or undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.task import TaskStatus
from holdfast.stores.nats import sheets
from holdfast.stores.nats.images import Fact, Image, Kept


class Rule(msgspec.Struct, array_like=True, frozen=True):
    """A queue in the stream."""

    paused: bool = False
    limits: Limits = NO_LIMITS
    tat: int = 0


Tally = dict[str, dict[str, int]]
"""By queue and status: tasks that have ended, less those that came back or were deleted."""


def added(tally: Tally, counts: Mapping[tuple[str, str], int]) -> Tally:
    """Zeros stay: an empty tally is one that was taken away."""
    summed = {queue: dict(by_status) for queue, by_status in tally.items()}
    for (queue, status), number in counts.items():
        by_status = summed.setdefault(queue, {})
        by_status[status] = by_status.get(status, 0) + number
    return summed


def counts_of(tally: Tally) -> Counter[tuple[str, str]]:
    return Counter({(queue, status): n for queue, by_status in tally.items() for status, n in by_status.items()})


class Noted(NamedTuple):
    record: Kept
    number: int
    fact: Fact


class Touched(NamedTuple):
    record: Kept
    before: Image | None
    """None: it is new."""
    rev: int


class TouchedLine(NamedTuple):
    before: Rule
    rev: int


@dataclass(slots=True)
class Changes:
    """What an act has touched, as it was before."""

    records: dict[str, Touched] = field(default_factory=dict)
    lines: dict[str, TouchedLine] = field(default_factory=dict)
    removed: dict[str, Kept] = field(default_factory=dict)
    facts: list[list[Noted]] = field(default_factory=list)
    """In order; those that are in one message together."""
    buried: list[Noted] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    births: int = 0
    on_sheet: bool = False
    """The last fact can stand on a sheet."""
    told_of: set[str] = field(default_factory=set)
    """Tasks of which one can: an image names one sheet that is written with it."""

    def __bool__(self) -> bool:
        return bool(self.records or self.lines or self.removed or self.left)

    @property
    def size(self) -> int:
        """How many messages it takes, and hardly more."""
        removed = len(self.removed)
        return 2 * (len(self.records) + self.births + removed) + len(self.facts) + len(self.buried) + len(self.left)

    def note(self, noted: Noted) -> None:
        """Only what follows one another comes together: the order of all stays what it is."""
        task_id = noted.record.new.id
        fits = task_id not in self.told_of and sheets.fits(noted.record, noted.fact)
        if fits:
            self.told_of.add(task_id)
        if fits and self.on_sheet and len(self.facts[-1]) < sheets.FACTS_MOST:
            self.facts[-1].append(noted)
        else:
            self.facts.append([noted])
        self.on_sheet = fits

    @property
    def fails_fast(self) -> bool:
        """A member has failed, and others are to end with it."""
        return any(
            record.new.fail_fast is not None and record.status in (TaskStatus.FAILED, TaskStatus.CANCELED)
            for record, _, _ in self.records.values()
        )

    @property
    def wakes(self) -> bool:
        """Somebody may have something to claim now."""
        return bool(self.lines) or any(record.status is TaskStatus.QUEUED for record, _, _ in self.records.values())

    @property
    def ends(self) -> bool:
        """It changes how many tasks have ended."""
        return any(number for number in self.tallied.values())

    @property
    def tallied(self) -> Counter[tuple[str, str]]:
        """How it changes the number of ended tasks."""
        counts: Counter[tuple[str, str]] = Counter()
        for record, before, _ in self.records.values():
            if before is not None and before.status.terminal:
                counts[record.new.queue, before.status.value] -= 1
            if record.new.id not in self.removed and record.status.terminal:
                counts[record.new.queue, record.status.value] += 1
        return counts
