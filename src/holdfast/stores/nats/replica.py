"""The live tasks in memory, as the stream has them, with the rules of the memory store to plan on.

A verb is planned by acting on the replica: `begin_change`, act, and what was touched is what has to be written
(`Changes`). From `planned` on it is under way, and nobody else may touch the same. If the write is refused, or nobody
knows, `undo` makes the replica what it was; if it is acknowledged, `commit` notes where the new images stand. The feed
brings what others have written; an image that is older than the known one is passed over, so it does not matter who
brings it first.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.model.limits import NO_LIMITS
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Fact as Told
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.record import Record
from holdfast.stores.memory.state import Work
from holdfast.stores.nats.changes import Changes, Noted, Rule, Tally, Touched, TouchedLine, counts_of
from holdfast.stores.nats.images import UNBORN, Fact, Image, Kept, born, fill, image_of, made
from holdfast.stores.nats.linked import Linked
from holdfast.stores.nats.rows import LEFT, PACK


class Busy(Exception):
    """What is to be touched is under way already, and nobody knows what will come of it."""


class Replica(Linked):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.line_revs: dict[str, int] = {}
        self.tallies: dict[str, tuple[Tally, int]] = {}
        self.heads: set[str] = set()
        """How the ids of ended tasks begin."""
        self.tables: dict[str, dict[str, tuple[Any, int]]] = {}
        self.hidden: dict[str, dict[str, tuple[Image, int]]] = {}
        """By pack: tasks of a large submit that is not unpacked yet."""
        self._changes: Changes | None = None
        """Being planned."""
        self._under_way: list[Changes] = []
        self.busy: set[str] = set()
        """Tasks whose change is under way."""
        self.told: dict[str, int] = {}
        """Of tasks that are read just now: up to where the stream has told of them."""
        self._parting: list[Kept] = []
        """Members that have ended while a change was in flight: who lives is not known before that is over."""

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
            if record.new.id in self.busy:
                raise Busy
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
        self._changes.note(Noted(record, record.noted, said))

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

    @property
    def size(self) -> int:
        """How many messages the change takes that is being planned."""
        return 0 if self._changes is None else self._changes.size

    def planned(self, changes: Changes) -> None:
        self._over(changes)
        self._under_way.append(changes)
        self.busy |= changes.records.keys()

    def is_under_way(self, changes: Changes) -> bool:
        return any(one is changes for one in self._under_way)

    def apart(self, changes: Changes) -> bool:
        """It says nothing of anything but these tasks, and nothing else says anything of them: others can be planned
        before it is known what becomes of it.
        """
        if changes.lines or changes.births or changes.removed or changes.left:
            return False
        for record, before, _ in changes.records.values():
            new = record.new
            if new.run_id is not None or new.concurrency_key is not None or before is None or before.status.terminal:
                return False
        queues = {record.new.queue for record, _, _ in changes.records.values()}
        return all(self.lines[queue].limits == NO_LIMITS for queue in queues)

    def undo(self, changes: Changes) -> None:
        """Of what the feed has brought meanwhile, nothing is undone."""
        if not self._over(changes):
            return
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
        self._part()

    def commit(self, changes: Changes, revs: dict[str, int], line_revs: dict[str, int], sheets: dict[str, int]) -> None:
        """`revs`: where the new images stand; of those that are gone there is none. `sheets`: those they name."""
        if not self._over(changes):
            return
        for task_id, (record, _, _) in changes.records.items():
            record.rev = max(record.rev, revs.get(task_id, 0))
            sheet = sheets.get(task_id)
            if sheet is not None and sheet not in record.sheets:  # else the feed was faster
                record.sheets = (*record.sheets, sheet)
            if record.seq == UNBORN:
                record.seq = record.rev
                self._unlink(record)
                self._link(record)
            if record.status.terminal and self.records.get(task_id) is record:
                self.see_off(record)
        for queue, rev in line_revs.items():
            self.line_revs[queue] = max(rev, self.line_revs.get(queue, 0))
        self._part()

    def _over(self, changes: Changes) -> bool:
        """False: everything is being read anew, and these records are not the ones that are here."""
        if self._changes is changes:
            self._changes = None
            self.turned.clear()
            self.left.clear()
            return True
        others = [one for one in self._under_way if one is not changes]
        known, self._under_way = len(others) < len(self._under_way), others
        if known:
            self.busy -= changes.records.keys()
        return known

    def _part(self) -> None:
        if self._under_way:
            return
        parting, self._parting = self._parting, []
        for record in parting:
            if record.status.terminal and self.records.get(record.new.id) is record:
                self.see_off(record)

    # What the stream says

    def place(self, task_id: str, image: Image, rev: int) -> None:
        if image.pack is not None and self.tables.get(PACK, {}).get(image.pack, (None, 0))[0] is not None:
            self.hidden.setdefault(image.pack, {})[task_id] = image, rev
            return
        self._hear(task_id, rev)
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
        self._hear(task_id, rev)
        record = self.records.get(task_id)
        if isinstance(record, Kept):
            if rev > record.rev:
                record.rev = rev
                self._refill(record, image)
                self._parting.append(record)
                self._part()
        elif image.head.run_id in self.whole:
            self._enter(made(task_id, image, rev))

    def drop(self, task_id: str, rev: int) -> None:
        """It is live no more."""
        self._hear(task_id, rev)
        record = self.records.get(task_id)
        if isinstance(record, Kept) and rev > record.rev:
            record.rev = rev  # a change that is in flight must not bring it back
            self.take_out(record)
            if record.new.run_id in self.whole:  # how it ended was too much to tell, or it is gone
                self.whole.discard(record.new.run_id)
                others = self.runs.get(str(record.new.run_id), {}).values()
                self._parting += [one for one in others if isinstance(one, Kept)]
                self._part()

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

    def _hear(self, task_id: str, rev: int) -> None:
        if task_id in self.told:
            self.told[task_id] = max(rev, self.told[task_id])
        for tasks in self.hidden.values():
            tasks.pop(task_id, None)

    def ended_counts(self) -> Counter[tuple[str, str]]:
        counts: Counter[tuple[str, str]] = Counter()
        for tally, _ in self.tallies.values():
            counts.update(counts_of(tally))
        return counts

    def _set_rule(self, queue: str, rule: Rule) -> None:
        line = self.lines.setdefault(queue, Line())
        line.paused, line.tat = rule.paused, rule.tat
        if line.limits != rule.limits:
            records = self.records.values()
            line.limit(rule.limits, [r for r in records if r.status is TaskStatus.QUEUED and r.new.queue == queue])


def _json(data: dict[str, Any]) -> str:
    return msgspec.json.encode(data).decode()
