"""From a URL to a store. The scheme names the folder; other packages add theirs as `holdfast.stores` entry points."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import InvalidTask
from holdfast.stores.protocol import StoreFactory

FOLDERS = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "http": "remote",
    "https": "remote",
    "nats": "nats",
    "tls": "nats",
}


def store_factory(url: str, *, clock: Clock = SYSTEM_CLOCK, **options: Any) -> StoreFactory:
    """A function that opens handles on the store at `url`. Bad URLs are refused here, before anything is opened."""
    scheme = urlsplit(url).scheme
    if scheme in FOLDERS:
        opener = import_module(f"holdfast.stores.{FOLDERS[scheme]}.opener")
        factory: StoreFactory = opener.factory(url, clock=clock, **options)
        return factory
    from importlib.metadata import entry_points  # costs 10 ms; most programs never come here

    for entry in entry_points(group="holdfast.stores", name=scheme):
        made: StoreFactory = entry.load()(url, clock=clock, **options)
        return made
    # Not repeated: what was meant as a URL may hold a password.
    raise InvalidTask(
        f"a URL with the scheme {scheme!r} names no store; write sqlite:///tasks.db, sqlite:////var/lib/tasks.db, "
        "postgresql://user@host/database, nats://host:4222/prefix, https://token@host (a dispatcher) or memory://name"
    )
