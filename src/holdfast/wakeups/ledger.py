"""Which messages are to be kept, extended and deleted: the books of a transport whose messages come back by themselves
(contract C12.5). No I/O, no clock; any thread.

A message is *waiting* until a claim that was made after it came has been answered. If that got its task, it is *held*
until the task is settled, and extended meanwhile; if there was no more to be had, it is *done*: somebody else has the
task, or it was a repetition. If the claim was full, the next one decides.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec


class Message(msgspec.Struct):
    task_id: str
    receipt: str
    turn: int
    """How many claims had been made when it came."""
    until: float
    """When it becomes visible to others."""


class Ledger:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turn = 0
        self._running: set[str] = set()
        self._waiting: list[Message] = []
        self._held: dict[str, list[Message]] = {}
        self._done: list[str] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def has_done(self) -> bool:
        return bool(self._done)

    def arrived(self, task_id: str, receipt: str, until: float) -> None:
        with self._lock:
            message = Message(task_id, receipt, self._turn, until)
            if task_id in self._running:
                self._held.setdefault(task_id, []).append(message)
            else:
                self._waiting.append(message)

    def asking(self) -> int:
        with self._lock:
            self._turn += 1
            return self._turn

    def answered(self, asked: int, task_ids: Sequence[str], *, short: bool) -> bool:
        """True if something became done."""
        with self._lock:
            self._running.update(task_ids)
            if not self._waiting:
                return False
            kept: list[Message] = []
            for message in self._waiting:
                if message.task_id in self._running:
                    self._held.setdefault(message.task_id, []).append(message)
                elif short and message.turn < asked:
                    self._done.append(message.receipt)
                else:
                    kept.append(message)
            self._waiting = kept
            return bool(self._done)

    def settled(self, task_id: str) -> bool:
        """True if something became done."""
        with self._lock:
            self._running.discard(task_id)
            messages = self._held.pop(task_id, [])
            self._done += [message.receipt for message in messages]
            return bool(messages)

    def refuse(self, receipt: str) -> None:
        with self._lock:
            self._done.append(receipt)

    def take_done(self) -> list[str]:
        with self._lock:
            done, self._done = self._done, []
            return done

    def ending(self, before: float, now: float) -> list[Message]:
        """Held messages that others would see before that moment. Waiting ones whose time is over are forgotten."""
        with self._lock:
            self._waiting = [message for message in self._waiting if message.until > now]
            return [message for held in self._held.values() for message in held if message.until < before]

    def give_up(self) -> list[str]:
        """What waits and was not decided, to be left to others."""
        with self._lock:
            left, self._waiting = [message.receipt for message in self._waiting], []
            return left
