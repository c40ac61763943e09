"""Which records a replica has, and who waits for whom among them.

Ended tasks are not here, with one exception: while a run lives whose members had to be loaded (members.py), those that
have ended stay, and are followed (`whole`). An act that needs to know more than is here raises Lacking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.clock import Clock
from holdfast.model.task import TaskStatus
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.state import MemoryState, Place, Work
from holdfast.stores.nats.images import Image, Kept, fill


class Lacking(Exception):
    """Something of this run is not here."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


class Linked(MemoryState):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.children: dict[str, dict[str, tuple[int, ...]]] = {}
        """By parent and child: which of the child's parents it is."""
        self.lives: Counter[str] = Counter()
        """By run: how many of its members live."""
        self.whole: set[str] = set()
        """Runs of which all members are here, or about to be."""

    # Runs (members.py)

    def move(self, record: Record, status: TaskStatus, now: int) -> None:
        if record.new.run_id is not None:
            self.lives[record.new.run_id] += record.status.terminal - status.terminal
        super().move(record, status, now)

    def live_run(self, record: Record) -> bool:
        return record.new.run_id is not None and self.lives[record.new.run_id] > 0

    def need_whole(self, run_id: str | None) -> None:
        if run_id is not None and run_id not in self.whole:
            raise Lacking(run_id)

    def edges(self, record: Record, after: Place) -> Sequence[Edge]:
        assert isinstance(record, Kept)
        children = self.children.get(record.new.id, {})
        if sum(map(len, children.values())) + record.lost < record.dependents:
            raise Lacking(str(record.new.run_id))
        found = []
        for child_id, places in children.items():
            child = self.records[child_id]
            assert isinstance(child, Kept)
            found += [(child.seq, at, child) for at in places if (child.seq, at) > after]
        return [Edge(child, at, bool(child.bits >> at & 1)) for _, at, child in sorted(found)]

    def count(self, record: Record, edge: Edge) -> None:
        super().count(record, edge)
        assert isinstance(edge.child, Kept)
        edge.child.bits |= 1 << edge.at

    def parents(self, record: Record) -> Sequence[Record]:
        assert isinstance(record, Kept)
        if record.new.parents or record.many:
            self.need_whole(record.new.run_id)
        return [self.records[parent_id] for parent_id in record.new.parents if parent_id in self.records]

    def is_blamed(self, record: Record) -> bool:
        self.need_whole(record.new.run_id)
        return super().is_blamed(record)

    def blamed(self, record: Record) -> list[Record]:
        self.need_whole(record.new.run_id)
        return super().blamed(record)

    def blame(self, record: Record, because: str | None) -> None:
        if because is not None and because not in self.records:
            self.need_whole(record.new.run_id)
        super().blame(record, because)

    def worked_on(self, work: Work) -> Record | None:
        if work.task_id not in self.records:
            self.need_whole(work.run_id)
        return super().worked_on(work)

    def name_parents(self, task_id: str, parents: tuple[str, ...]) -> None:
        """Of one whose image does not."""
        record = self.records.get(task_id)
        if record is not None and not record.new.parents:
            record.new = msgspec.structs.replace(record.new, parents=parents)
            self._wait(record)

    def note_lost(self, run_id: str) -> None:
        """All that there is of this run is here."""
        for record in self.runs.get(run_id, {}).values():
            assert isinstance(record, Kept)
            known = sum(map(len, self.children.get(record.new.id, {}).values()))
            record.lost = max(0, record.dependents - known)

    def see_off(self, record: Kept) -> None:
        """It has ended: it stays while its run is whole and lives."""
        run_id = record.new.run_id
        if run_id is None or run_id not in self.whole:
            self.take_out(record)
        else:
            self.keep_if_live(run_id)

    def keep_if_live(self, run_id: str) -> None:
        if not self.lives[run_id]:
            self.retire(run_id)

    def retire(self, run_id: str) -> None:
        self.whole.discard(run_id)
        for record in list(self.runs.get(run_id, {}).values()):
            if record.status.terminal and isinstance(record, Kept):
                self.take_out(record)

    # Links

    def _enter(self, record: Kept) -> None:
        new = record.new
        self.records[new.id] = record
        if new.run_id is not None:
            self.runs.setdefault(new.run_id, {})[new.id] = record
            self._wait(record)
        self._link(record)

    def _wait(self, record: Record) -> None:
        for at, parent_id in enumerate(record.new.parents):
            children = self.children.setdefault(parent_id, {})
            children[record.new.id] = (*children.get(record.new.id, ()), at)

    def take_out(self, record: Kept) -> None:
        new = record.new
        self._unlink(record)
        record.run_at = -1  # it may still stand in line (memory/lines.py), and is passed over there
        del self.records[new.id]
        if new.run_id is None:
            return
        del self.runs[new.run_id][new.id]
        if not self.runs[new.run_id]:
            del self.runs[new.run_id]
            self.lives.pop(new.run_id, None)
        for parent_id in dict.fromkeys(new.parents):
            del self.children[parent_id][new.id]
            if not self.children[parent_id]:
                del self.children[parent_id]

    def _link(self, record: Kept) -> None:
        new = record.new
        if new.run_id is not None and not record.status.terminal:
            self.lives[new.run_id] += 1
        if record.canceled_because is not None:
            self.because.setdefault(record.canceled_because, {})[new.id] = record
        self.counts[new.queue, record.status] += 1
        line = self.lines.setdefault(new.queue, Line())
        if record.status is TaskStatus.QUEUED:
            line.add(record)
        elif record.status is TaskStatus.RUNNING:
            self.running[new.id] = record
        elif record.status.terminal:
            self.ended[new.id] = record
        if record.begun and new.concurrency_key is not None:
            self.begun.setdefault((new.queue, new.concurrency_key), {})[new.id] = record

    def _unlink(self, record: Kept, *, runs_on: bool = False) -> None:
        new = record.new
        if new.run_id is not None and not record.status.terminal:
            self.lives[new.run_id] -= 1
            if not self.lives[new.run_id]:
                del self.lives[new.run_id]
        if record.canceled_because is not None:
            self.because[record.canceled_because].pop(new.id, None)
            if not self.because[record.canceled_because]:
                del self.because[record.canceled_because]
        self.counts[new.queue, record.status] -= 1
        if not runs_on:
            self.running.pop(new.id, None)
        self.ended.pop(new.id, None)
        if new.concurrency_key is not None:
            place = new.queue, new.concurrency_key
            self.begun.get(place, {}).pop(new.id, None)
            if place in self.begun and not self.begun[place]:
                del self.begun[place]

    def _refill(self, record: Kept, image: Image) -> None:
        """One that runs on keeps its place among those that run: a claim that is repeated is answered in its order."""
        self._unlink(record, runs_on=image.status is TaskStatus.RUNNING)
        fill(record, image)
        self._link(record)
