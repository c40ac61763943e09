"""The live tasks in memory, as the stream has them, with the rules of the memory store to plan on.

A verb is planned by acting on the replica: `begin`, act, and what was touched is what has to be written (`Changes`).
If the write is refused, or nobody knows, `undo` makes the replica what it was; if it is acknowledged, `commit` notes
where the new images stand. The feed brings what others have written; an image that is older than the known one is
passed over, so it does not matter who brings it first.

Ended tasks are not here, with one exception: while a run lives whose members had to be loaded (members.py), those that
have ended stay, and are followed (`whole`). An act that needs to know more than is here raises Lacking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from holdfast.clock import Clock
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Fact as Told
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.state import MemoryState, Place, Work
from holdfast.stores.nats.images import UNBORN, Fact, Image, Kept, born, fill, image_of, made
from holdfast.stores.nats.rows import LEFT, PACK


class Rule(msgspec.Struct, array_like=True, frozen=True):
    """A queue in the stream."""

    paused: bool = False
    limits: Limits = NO_LIMITS
    tat: int = 0


class Lacking(Exception):
    """Something of this run is not here."""

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


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
    facts: list[Noted] = field(default_factory=list)
    buried: list[Noted] = field(default_factory=list)
    left: set[str] = field(default_factory=set)
    births: int = 0

    def __bool__(self) -> bool:
        return bool(self.records or self.lines or self.removed or self.left)

    @property
    def size(self) -> int:
        """How many messages it takes, and hardly more."""
        removed = len(self.removed)
        return 2 * (len(self.records) + self.births + removed) + len(self.facts) + len(self.buried) + len(self.left)

    @property
    def fails_fast(self) -> bool:
        """A member has failed, and others are to end with it."""
        return any(
            record.new.fail_fast is not None and record.status in (TaskStatus.FAILED, TaskStatus.CANCELED)
            for record, _, _ in self.records.values()
        )

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


class Replica(MemoryState):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.line_revs: dict[str, int] = {}
        self.tallies: dict[str, tuple[Tally, int]] = {}
        self.heads: set[str] = set()
        """How the ids of ended tasks begin."""
        self.tables: dict[str, dict[str, tuple[Any, int]]] = {}
        self.hidden: dict[str, dict[str, tuple[Image, int]]] = {}
        """By pack: tasks of a large submit that is not unpacked yet."""
        self.children: dict[str, dict[str, tuple[int, ...]]] = {}
        """By parent and child: which of the child's parents it is."""
        self.lives: Counter[str] = Counter()
        """By run: how many of its members live."""
        self.whole: set[str] = set()
        """Runs of which all members are here, or about to be."""
        self._changes: Changes | None = None

    def clear(self) -> None:
        """Everything is about to be read anew."""
        self.__init__(self.clock)  # type: ignore[misc]

    # Planning

    def begin_change(self) -> Changes:
        rows = self.tables.get(LEFT, {}).values()
        self.left = {work.name: work for work, _ in rows if work is not None}
        self._changes = Changes()
        return self._changes

    def touch(self, record: Record) -> None:
        assert isinstance(record, Kept)
        changes = self._changes
        if changes is not None and record.new.id not in changes.records:
            changes.records[record.new.id] = Touched(record, image_of(record) if record.rev else None, record.rev)
            changes.births += not record.rev

    def touch_line(self, queue: str) -> None:
        if self._changes is not None and queue not in self._changes.lines:
            self._changes.lines[queue] = TouchedLine(self.rule(queue), self.line_revs.get(queue, 0))

    def rule(self, queue: str) -> Rule:
        line = self.lines.get(queue)
        return Rule() if line is None else Rule(line.paused, line.limits, line.tat)

    def add(self, new: NewTask, run_at: int, now: int) -> Record:
        record = born(new, run_at, now)
        self.touch(record)
        for parent_id in new.parents:
            parent = self.records[parent_id]
            assert isinstance(parent, Kept)
            parent.dependents += 1
        self._enter(record)
        return record

    def note(self, record: Record, fact: Told, now: int, actor: str) -> None:
        assert isinstance(record, Kept)
        self.touch(record)
        if self._changes is None or fact.kind == "task.enqueued":
            return  # the spec says so
        record.noted += 1
        said = Fact(record.new.id, now, record.new.run_id, fact.kind, actor, _json(fact.data))
        self._changes.facts.append(Noted(record, record.noted, said))

    def remove(self, record: Record) -> None:
        assert isinstance(record, Kept)
        self.touch(record)
        if self._changes is not None:
            self._changes.removed[record.new.id] = record
        self.take_out(record)

    def bury(self, record: Record, now: int, actor: str) -> None:
        assert isinstance(record, Kept)
        if self._changes is not None:
            data = _json({"attempt": record.attempt})
            said = Fact(record.new.id, now, record.new.run_id, "task.deleted", actor, data)
            self._changes.buried.append(Noted(record, record.noted + 1, said))

    def undo(self, changes: Changes) -> None:
        """Of what the feed has brought meanwhile, nothing is undone."""
        self._changes = None
        self._forget_turns()
        for task_id, (record, before, rev) in changes.records.items():
            if record.rev != rev:
                continue
            here = self.records.get(task_id) is record
            if before is None:
                if here:
                    self.take_out(record)
            elif here:
                self._refill(record, before)
            elif task_id not in self.records and (not before.status.terminal or before.head.run_id in self.whole):
                fill(record, before)
                self._enter(record)
        for queue, (rule, rev) in changes.lines.items():
            if self.line_revs.get(queue, 0) == rev:
                self._set_rule(queue, rule)

    def commit(self, changes: Changes, revs: dict[str, int], line_revs: dict[str, int]) -> None:
        """`revs`: where the new images stand; of those that have ended there is none."""
        self._changes = None
        self._forget_turns()
        for task_id, (record, _, _) in changes.records.items():
            record.rev = max(record.rev, revs.get(task_id, 0))
            if record.seq == UNBORN:
                record.seq = record.rev
                self._unlink(record)
                self._link(record)
            if record.status.terminal and self.records.get(task_id) is record:
                self.see_off(record)
        for queue, rev in line_revs.items():
            self.line_revs[queue] = max(rev, self.line_revs.get(queue, 0))

    def _forget_turns(self) -> None:
        self.turned.clear()
        self.left.clear()

    # What the stream says

    def place(self, task_id: str, image: Image, rev: int) -> None:
        if image.pack is not None and self.tables.get(PACK, {}).get(image.pack, (None, 0))[0] is not None:
            self.hidden.setdefault(image.pack, {})[task_id] = image, rev
            return
        self._unhide(task_id)
        record = self.records.get(task_id)
        if record is None:
            self._enter(made(task_id, image, rev))
            return
        assert isinstance(record, Kept)
        if rev > record.rev:
            record.rev = rev
            self._refill(record, image)

    def place_ended(self, task_id: str, image: Image, rev: int) -> None:
        """A member of a run has ended; this is where its place is now."""
        self._unhide(task_id)
        record = self.records.get(task_id)
        if isinstance(record, Kept):
            if rev > record.rev:
                record.rev = rev
                self._refill(record, image)
                self.see_off(record)
        elif image.head.run_id in self.whole:
            self._enter(made(task_id, image, rev))

    def drop(self, task_id: str, rev: int) -> None:
        """It is live no more."""
        self._unhide(task_id)
        record = self.records.get(task_id)
        if isinstance(record, Kept) and rev > record.rev:
            record.rev = rev  # a change that is in flight must not bring it back
            self.take_out(record)
            if record.new.run_id in self.whole:  # how it ended was too much to tell, or it is gone
                self.retire(record.new.run_id)

    def place_rule(self, queue: str, rule: Rule, rev: int) -> None:
        if rev > self.line_revs.get(queue, 0):
            self.line_revs[queue] = rev
            self._set_rule(queue, rule)

    def place_tally(self, handle: str, tally: Tally | None, rev: int) -> None:
        if rev > self.tallies.get(handle, ({}, 0))[1]:
            self.tallies[handle] = tally or {}, rev

    def place_row(self, table: str, key: str, row: Any, rev: int) -> None:
        rows = self.tables.setdefault(table, {})
        if rev > rows.get(key, (None, 0))[1]:
            rows[key] = row, rev
            if table == PACK and row is None:
                self._reveal(key)
        if table == LEFT and row is None and rev >= rows.get(key, (None, rev))[1]:
            rows.pop(key, None)  # there is no end of them

    def _reveal(self, pack: str) -> None:
        for task_id, (image, rev) in self.hidden.pop(pack, {}).items():
            self.place(task_id, image, rev)

    def _unhide(self, task_id: str) -> None:
        for tasks in self.hidden.values():
            tasks.pop(task_id, None)

    def ended_counts(self) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        for tally, _ in self.tallies.values():
            counts.update(counts_of(tally))
        return counts

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

    def leave(self, work: Work) -> None:
        super().leave(work)
        if self._changes is not None:
            self._changes.left.add(work.name)

    def finish(self, work: Work) -> None:
        if self._changes is not None and work.name in self.tables.get(LEFT, {}):
            self._changes.left.add(work.name)
        elif self._changes is not None:
            self._changes.left.discard(work.name)
        super().finish(work)

    def blame(self, record: Record, because: str | None) -> None:
        if because is not None and because not in self.records:
            self.need_whole(record.new.run_id)
        super().blame(record, because)

    def worked_on(self, work: Work) -> Record | None:
        if work.task_id not in self.records:
            self.need_whole(work.run_id)
        return super().worked_on(work)

    @property
    def size(self) -> int:
        """How many messages the change takes that is being planned."""
        return 0 if self._changes is None else self._changes.size

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

    def _unlink(self, record: Kept) -> None:
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
        self.running.pop(new.id, None)
        self.ended.pop(new.id, None)
        if new.concurrency_key is not None:
            place = new.queue, new.concurrency_key
            self.begun.get(place, {}).pop(new.id, None)
            if place in self.begun and not self.begun[place]:
                del self.begun[place]

    def _refill(self, record: Kept, image: Image) -> None:
        self._unlink(record)
        fill(record, image)
        self._link(record)

    def _set_rule(self, queue: str, rule: Rule) -> None:
        line = self.lines.setdefault(queue, Line())
        line.paused, line.tat = rule.paused, rule.tat
        if line.limits != rule.limits:
            records = self.records.values()
            line.limit(rule.limits, [r for r in records if r.status is TaskStatus.QUEUED and r.new.queue == queue])


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.encode(data).decode()
