"""Memory stores by name. A name means the same store everywhere in this process; without one, the factory's own."""

from __future__ import annotations

import threading
from typing import Any
from urllib.parse import urlsplit

from holdfast.clock import Clock
from holdfast.errors import InvalidTask
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import StoreFactory

_lock = threading.Lock()
_named: dict[str, MemoryState] = {}


def factory(url: str, *, clock: Clock, **options: Any) -> StoreFactory:
    if options:
        raise InvalidTask(f"the memory store takes no option {sorted(options)[0]!r}")
    parts = urlsplit(url)
    name = parts.netloc + parts.path
    if not name:
        state = MemoryState(clock)
    else:
        with _lock:
            state = _named.setdefault(name, MemoryState(clock))
    return lambda: MemoryStore(state, name=name)
