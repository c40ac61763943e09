"""The wake-ups of one handle: who is told when something was committed, and what can be listened to.

Those in this process are told by a hub, at once; other processes through the server (notifier.py, listener.py). The
two topics, work and ends, go the same way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from holdfast import ids
from holdfast.clock import Clock
from holdfast.stores.postgres.database import SESSION, Database
from holdfast.stores.postgres.doctor import Finding
from holdfast.stores.postgres.listener import HINT, Listener, Swallowed
from holdfast.stores.postgres.notifier import Notifier
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pool import Seat
from holdfast.stores.postgres.topics import News, Topic, topic
from holdfast.wakeups.in_process import Hub
from holdfast.wakeups.protocol import Wakeup


class Hubs:
    """What the handles of one process on one store share."""

    def __init__(self) -> None:
        self.name = ids.nonce()
        self.work = Hub()
        self.ends = Hub()


QUESTION = "wake-ups"

_gate = threading.Lock()
_hubs: dict[tuple[str, str], Hubs] = {}


def _hubs_of(options: Options) -> Hubs:
    with _gate:
        return _hubs.setdefault((options.dsn, options.schema), Hubs())


def _forget_parents_hubs() -> None:
    """Their listeners are on event loops of the parent."""
    global _gate
    _gate = threading.Lock()
    _hubs.clear()


os.register_at_fork(after_in_child=_forget_parents_hubs)


class Channel:
    """One topic, as this handle tells it and hears it."""

    def __init__(self, hub: Hub, notifier: Notifier | None, listener: Listener | None) -> None:
        self._hub = hub
        self._notifier = notifier
        self._listener = listener
        self.wakeups: Sequence[Wakeup] = (hub,) if listener is None else (hub, listener)

    def announce(self) -> None:
        """After a commit."""
        self._hub.announce()
        if self._notifier is not None:
            self._notifier.announce()

    def for_the_commit(self) -> News | None:
        return None if self._notifier is None else self._notifier.for_the_commit()

    def told(self, *, heard: bool) -> None:
        """By the commit itself."""
        self._hub.announce()
        if self._notifier is not None:
            self._notifier.told(heard=heard)

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._notifier is not None:
            await self._notifier.close()


class Wakeups:
    def __init__(self, options: Options, database: Database, clock: Clock) -> None:
        self._options = options
        self._database = database
        self._clock = clock
        self._hubs = _hubs_of(options)
        self._telling = self._seat()
        self.work = self._channel(self._hubs.work, topic("work", options.schema))
        self.ends = self._channel(self._hubs.ends, topic("ends", options.schema))

    async def close(self) -> None:
        await self.work.close()
        await self.ends.close()
        await self._telling.close()

    async def finding(self) -> Finding:
        """For `holdfast doctor`."""
        if not self._options.wakeups:
            return QUESTION, True, "switched off by wakeups=off; workers poll"
        if self._options.pooled:
            return QUESTION, True, "a pooler lets nobody listen; workers poll"
        about = topic("work", self._options.schema)
        probe = self._listener(about, self._notifier(about))
        try:
            await probe.prove()
        except Swallowed:
            return QUESTION, False, HINT
        finally:
            await probe.close()
        return QUESTION, True, "a session hears what another one tells"

    def _channel(self, hub: Hub, about: Topic) -> Channel:
        if not self._options.wakeups:
            return Channel(hub, None, None)
        notifier = self._notifier(about)
        return Channel(hub, notifier, None if self._options.pooled else self._listener(about, notifier))

    def _notifier(self, about: Topic) -> Notifier:
        return Notifier(self._telling, about, self._hubs.name)

    def _listener(self, about: Topic, notifier: Notifier) -> Listener:
        label, sender = self._options.label, self._hubs.name
        return Listener(self._seat(), about, label=label, sender=sender, tell=notifier.tell)

    def _seat(self) -> Seat:
        return Seat(self._database, self._clock, SESSION)
