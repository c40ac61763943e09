"""What has to be written for a change: each record in its place, its events, the queues' rules, and the tally.

A record has one place: under `live` while it lives, under `end` afterwards. A change expects the image that it was
planned on to be the last in its place, so of two changes of one task only one is written. Leaving a place leaves an
empty message there for a while.

The order matters to a server that stores a part of a step only (torn.py): a task comes to its new place before it
leaves the old one. What is followed comes last, bulletins at the very end: those who follow are told there what became
of live tasks, and, where they may have a whole run at hand (members.py), how its members have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast import ids
from holdfast.model.task import NewTask
from holdfast.stores.nats.bulletins import bulletins
from holdfast.stores.nats.changes import Changes, Noted, Tally, Touched
from holdfast.stores.nats.images import Kept, Spec, encode, image_of
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.rows import SCHEDULE
from holdfast.stores.nats.sheets import written
from holdfast.stores.nats.specs import Known
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.wire import Message

MARKER_TTL = "60s"
"""For how long an empty message stays. Those who have not looked for longer read everything anew (feed.py)."""
TOLD_MOST = 16 << 10
"""A larger end is not told but read by those who need it."""


class Plan:
    """The messages of one change, and which of them hold which record and queue."""

    def __init__(self, subjects: Subjects, known: Known) -> None:
        self._subjects = subjects
        self._known = known
        self._kept: list[Message] = []
        self._lives: list[Message] = []
        self._leaving: list[Message] = []
        self._followed: list[Message] = []
        self._at: dict[str, tuple[Kept, bool, int]] = {}
        """By task: the record, whether it lives, and where among those its image is; it is made when all is known."""
        self._left: list[tuple[NewTask, int]] = []
        """Who lives no more, and where among the leaving it says so."""
        self._sheets: dict[str, int] = {}
        """By task: where the sheet is."""
        self._lines: list[tuple[str, int]] = []
        self._tallies: list[tuple[str, Tally | None, int]] = []
        self._runs: dict[str, list[str]] = {}
        self._nonce = ids.token_hex(12)
        self._rows: list[tuple[str, str, Any, int]] = []
        self._bulletins = 0

    @property
    def size(self) -> int:
        """Without bulletins: see `messages`."""
        return self._followed_at + len(self._followed)

    @property
    def _lives_at(self) -> int:
        return len(self._kept) + len(self._runs)

    @property
    def _leaving_at(self) -> int:
        return self._lives_at + len(self._lives)

    @property
    def _followed_at(self) -> int:
        return self._leaving_at + len(self._leaving)

    @property
    def messages(self) -> list[Message]:
        messages = [*self._kept, *self._index(), *self._lives, *self._leaving, *self._followed]
        places: dict[str, int] = {}
        for task_id, (record, lives, at) in self._at.items():
            place = places[task_id] = at + (self._lives_at if lives else 0)
            sheet = self._sheets.get(task_id)
            body = encode(image_of(record, sheet=0 if sheet is None else place - sheet))
            messages[place] = messages[place]._replace(body=body)
        for number, body in enumerate(bulletins(self._news(messages, places), len(messages))):
            self._bulletins = number + 1
            messages.append(Message(self._subjects.bulletin(self._nonce, number), body, None, MARKER_TTL))
        return messages

    def _news(self, messages: Sequence[Message], places: Mapping[str, int]) -> Iterator[tuple[str, int, bytes]]:
        """For those who follow. The end of a task that has no run says only that it lives no more."""
        for task_id, (_, lives, _) in self._at.items():
            if lives:
                yield task_id, places[task_id], messages[places[task_id]].body
        for new, at in self._left:
            place = places.get(new.id)
            if new.run_id is not None and place is not None and len(messages[place].body) <= TOLD_MOST:
                yield new.id, place, messages[place].body
            else:
                yield new.id, self._leaving_at + at, b""

    def _index(self) -> list[Message]:
        """Of each run: who was born into it. It is written once, and has a name that nobody else gives."""
        subjects, nonce = self._subjects, self._nonce
        return [
            Message(subjects.born_together(run, min(members), nonce), encode(members))
            for run, members in self._runs.items()
        ]

    # Where everything stands, if the last message of all has this sequence

    def _first(self, last: int) -> int:
        return last - self.size - self._bulletins + 1

    def revs(self, last: int) -> dict[str, int]:
        """By task: its image."""
        first, lives_first = self._first(last), self._first(last) + self._lives_at
        return {task_id: (lives_first if lives else first) + at for task_id, (_, lives, at) in self._at.items()}

    def sheets(self, last: int) -> dict[str, int]:
        """By task: the sheet that holds an event of it."""
        first = self._first(last)
        return {task_id: first + at for task_id, at in self._sheets.items()}

    def line_revs(self, last: int) -> dict[str, int]:
        first = self._first(last) + self._followed_at
        return {queue: first + at for queue, at in self._lines}

    def tallies(self, last: int) -> list[tuple[str, Tally | None, int]]:
        """Handle, tally, and its message."""
        first = self._first(last) + self._followed_at
        return [(handle, tally, first + at) for handle, tally, at in self._tallies]

    def rows(self, last: int) -> list[tuple[str, str, Any, int]]:
        """Table, key, row, and its message."""
        first = self._first(last) + self._followed_at
        return [(table, key, row, first + at) for table, key, row, at in self._rows]

    # What can change

    def change(self, changes: Changes, replica: Replica) -> None:
        for task_id, touched in changes.records.items():
            if task_id in changes.removed:
                self._remove(touched)
            elif touched.before is None:
                self.birth(touched.record)
            else:
                self._move(touched)
        for together in changes.facts:
            self._tell(together)
        for record, number, fact in changes.buried:
            self._kept.append(Message(self._subjects.gone(record.new.id, number), encode(fact)))
        for queue, (_, rev) in changes.lines.items():
            self.rule(queue, encode(replica.rule(queue)), rev)

    def _tell(self, together: Sequence[Noted]) -> None:
        if len(together) == 1:
            ((record, number, fact),) = together
            self._kept.append(Message(self._subjects.event(record.new.id, number), encode(fact)))
            return
        at = len(self._kept)
        on_it = {record.new.id: at for record, _, _ in together}
        assert not self._sheets.keys() & on_it, "no change begins or completes a task twice"
        self._sheets |= on_it
        body = encode([written(fact) for _, _, fact in together])
        self._kept.append(Message(self._subjects.sheet(self._nonce, at), body))

    def birth(self, record: Kept, *, keyed: bool = True) -> None:
        new = record.new
        spec = Spec(new, record.created_at, record.status.value)
        self._kept.append(Message(self._subjects.spec(new.id), encode(spec), self._known.left_ids.get(new.id, 0)))
        if keyed:
            self.key(new)
        if new.run_id is not None:
            self._runs.setdefault(new.run_id, []).append(new.id)
        self._live(record, None)

    def key(self, new: NewTask) -> None:
        if new.idempotency_key is not None:
            left = self._known.left_keys.get(new.idempotency_key, 0)
            self.keep(self._subjects.idem(new.idempotency_key), new.id.encode(), left)

    def _move(self, touched: Touched) -> None:
        record, before, rev = touched
        assert before is not None
        new = record.new
        if not record.status.terminal:
            if before.status.terminal:
                self._leave_end(before.status.value, new.queue, new.id, rev)
                self._live(record, None)
            else:
                self._live(record, rev)
            return
        if before.status is record.status:
            self._end(record, rev, None)
        elif before.status.terminal:
            self._leave_end(before.status.value, new.queue, new.id, rev)
            self._end(record, None, None)
        else:
            self._end(record, None, rev)

    def _remove(self, touched: Touched) -> None:
        new, before = touched.record.new, touched.before
        assert before is not None
        self._leave_end(before.status.value, new.queue, new.id, touched.rev)
        if new.idempotency_key is not None:
            self._kept.append(Message(self._subjects.idem(new.idempotency_key), b"", None, MARKER_TTL))
        if new.run_id is not None:
            self._leave_live(new, None)

    def rule(self, queue: str, body: bytes, rev: int) -> None:
        self._lines.append((queue, len(self._followed)))
        self._followed.append(Message(self._subjects.queue(queue), body, rev))

    def row(self, table: str, key: str, row: Any, rev: int | None) -> None:
        """None as the row: it is taken away. Of what can come back under its name, the empty message stays for good:
        who writes it again expects that, and would not be told that it has vanished.
        """
        self._rows.append((table, key, row, len(self._followed)))
        subject = self._subjects.table(table, key)
        gone = row is None
        ttl = MARKER_TTL if gone and table != SCHEDULE else None
        self._followed.append(Message(subject, b"" if gone else encode(row), rev, ttl))

    def keep(self, subject: str, body: bytes, rev: int = 0, ttl: str | None = None) -> None:
        self._kept.append(Message(subject, body, rev, ttl))

    def tally(self, handle: str, tally: Tally | None, rev: int) -> None:
        """None: it is taken away."""
        self._tallies.append((handle, tally, len(self._followed)))
        subject = self._subjects.tally(handle)
        gone = tally is None
        self._followed.append(Message(subject, b"" if gone else encode(tally), rev, MARKER_TTL if gone else None))

    def head(self, head: str) -> None:
        """Whoever writes it writes the same."""
        self._followed.append(Message(self._subjects.head(head), b"1"))

    # Places

    def _live(self, record: Kept, rev: int | None) -> None:
        self._at[record.new.id] = record, True, len(self._lives)
        self._lives.append(Message(self._subjects.live(record.new.queue, record.new.id), b"", rev))

    def _end(self, record: Kept, rev: int | None, live_rev: int | None) -> None:
        """`live_rev`: of the place that it leaves."""
        if record.new.run_id is not None or live_rev is not None:
            self._leave_live(record.new, live_rev)
        self._at[record.new.id] = record, False, len(self._kept)
        subject = self._subjects.end(record.status.value, record.new.queue, record.new.id)
        self._kept.append(Message(subject, b"", rev))

    def _leave_live(self, new: NewTask, rev: int | None) -> None:
        self._left.append((new, len(self._leaving)))
        self._leaving.append(Message(self._subjects.live(new.queue, new.id), b"", rev, MARKER_TTL))

    def _leave_end(self, status: str, queue: str, task_id: str, rev: int) -> None:
        self._leaving.append(Message(self._subjects.end(status, queue, task_id), b"", rev, MARKER_TTL))
