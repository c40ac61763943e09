"""Listens on an SQS queue (contract C12.5), with two threads: one receives by long polling, but only while the worker
wants work; the other extends what runs here and deletes what is settled. What a message means is in ledger.py.

A queue that cannot be reached is reported and tried again, longer and longer apart; the worker polls its store all the
time. Visibility is never a correctness mechanism: whatever goes wrong here costs latency.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.outbox import NewSink
from holdfast.policy.admission import NAME_BYTES
from holdfast.transports.sqs import BATCH, Connection, WakeupBody, connect, parsed
from holdfast.wakeups.ledger import Ledger
from holdfast.wakeups.protocol import Wake
from holdfast.wakeups.reports import Reports

LONG_POLL_SECONDS = 20
READ_SECONDS = 30.0
VISIBILITY_SECONDS = 120
WAITING_MOST = 200
"""With so many undecided messages in hand no more are received."""
CLOSE_SECONDS = 2.0

_decode = msgspec.json.Decoder(WakeupBody).decode


class SqsWakeup:
    def __init__(
        self,
        sink: NewSink,
        queues: Sequence[str] | None,
        reports: Reports,
    ) -> None:
        self._address = parsed(sink.url)
        self._queues = None if queues is None else frozenset(queues)
        self._reports = reports
        self._visibility = VISIBILITY_SECONDS
        self._ledger = Ledger()
        self._changed = threading.Condition()
        self._idle = 0
        self._closed = False
        self._wake: Wake = lambda: None
        self._connection: Connection | None = None
        self._doubtful = False
        """It did not work: the next call is to be answered at once, so that its being back is known."""
        self._threads = [
            threading.Thread(target=self._receive, name="holdfast-sqs-receive", daemon=True),
            threading.Thread(target=self._tend, name="holdfast-sqs-tend", daemon=True),
        ]

    # As the worker sees it

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def listen(self, wake: Wake) -> Callable[[], None]:
        self._wake = wake

        def stop() -> None:
            self._wake = lambda: None

        return stop

    def idle(self) -> None:
        with self._changed:
            self._idle += 1
            self._changed.notify_all()

    def busy(self) -> None:
        with self._changed:
            self._idle -= 1

    def asking(self) -> int:
        return self._ledger.asking()

    def answered(self, asked: int, task_ids: Sequence[str], *, short: bool) -> None:
        if self._ledger.answered(asked, task_ids, short=short):
            self._notify()

    def settled(self, task_id: str) -> None:
        if self._ledger.settled(task_id):
            self._notify()

    def close(self) -> None:
        """The long poll that is under way is not waited for: what it still brings is given back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._threads[1].is_alive():
            self._threads[1].join(CLOSE_SECONDS)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # Receiving

    def _receive(self) -> None:
        while self._wanted():
            try:
                connection = self._connected()
                said = connection.client.receive_message(
                    QueueUrl=connection.queue_url,
                    MaxNumberOfMessages=BATCH,
                    WaitTimeSeconds=0 if self._doubtful else LONG_POLL_SECONDS,
                    VisibilityTimeout=self._visibility,
                )
                self._doubtful = False
                self._reports.works()
            except Exception as error:
                self._lost(error)
                continue
            messages = said.get("Messages", [])
            if self._closed:
                self._change([(message["ReceiptHandle"], 0) for message in messages], connection)
            else:
                self._sort(messages)

    def _wanted(self) -> bool:
        """Waits until the worker wants work; False once it is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._idle > 0 and self._ledger.waiting < WAITING_MOST))
            return not self._closed

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None:
            connection = self._connection = connect(self._address, read_seconds=READ_SECONDS)
            self._wake()  # of what happened before, nobody has told
        return connection

    def _lost(self, error: Exception) -> None:
        """A connection that failed is not used again."""
        self._let_go()
        self._doubtful = True
        with self._changed:
            if not self._closed:
                self._changed.wait_for(lambda: self._closed, self._reports.failed(error))

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _sort(self, messages: Sequence[Mapping[str, Any]]) -> None:
        until = SYSTEM_CLOCK.monotonic() + self._visibility
        refused = 0
        for message in messages:
            body = _meant(message)
            if body is None:
                refused += 1
                self._ledger.refuse(message["ReceiptHandle"])
            elif self._queues is None or body.queue in self._queues:
                self._ledger.arrived(body.task_id, message["ReceiptHandle"], until)
            # Else it is for workers of other queues: it becomes visible to them again by itself.
        self._reports.refuse(refused)
        if messages:
            self._notify()
            self._wake()

    # Tending

    def _tend(self) -> None:
        while self._tending():
            connection = self._connection
            self._delete(self._ledger.take_done(), connection)
            self._extend(connection)
        self._change([(receipt, 0) for receipt in self._ledger.give_up()], self._connection)
        self._let_go()

    def _tending(self) -> bool:
        """Waits until there is something to do. On closing, one last round."""
        with self._changed:
            if self._closed:
                return self._ledger.has_done
            self._changed.wait_for(lambda: self._closed or self._ledger.has_done, self._visibility / 6)
            return True

    def _extend(self, connection: Connection | None) -> None:
        now = SYSTEM_CLOCK.monotonic()
        ending = self._ledger.ending(now + self._visibility * 2 / 3, now)
        for message in ending:
            message.until = now + self._visibility
        self._change([(message.receipt, self._visibility) for message in ending], connection)

    def _delete(self, receipts: Sequence[str], connection: Connection | None) -> None:
        entries = [{"Id": str(place % BATCH), "ReceiptHandle": receipt} for place, receipt in enumerate(receipts)]
        self._in_batches(entries, "delete_message_batch", connection)

    def _change(self, wanted: Sequence[tuple[str, int]], connection: Connection | None) -> None:
        entries = [
            {"Id": str(place % BATCH), "ReceiptHandle": receipt, "VisibilityTimeout": seconds}
            for place, (receipt, seconds) in enumerate(wanted)
        ]
        self._in_batches(entries, "change_message_visibility_batch", connection)

    def _in_batches(self, entries: Sequence[dict[str, Any]], call: str, connection: Connection | None) -> None:
        """What fails here comes back as a repetition, which costs nothing; the receiver reports a dead queue."""
        for first in range(0, len(entries), BATCH):
            if connection is None:
                return
            try:
                getattr(connection.client, call)(
                    QueueUrl=connection.queue_url, Entries=list(entries[first : first + BATCH])
                )
            except Exception:
                return


def _meant(message: Mapping[str, Any]) -> WakeupBody | None:
    """What a message says; None for what is none of ours."""
    text = message.get("Body", "")
    if len(text) > 8 * NAME_BYTES:
        return None
    try:
        body = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    names = (body.task_id, body.queue)
    return body if all(0 < len(name) <= NAME_BYTES for name in names) else None
