"""What a NATS URL says: which servers, which prefix, how many copies.

nats://user:password@host:4222,other:4222/holdfast?replicas=3
tls://…                                                         TLS from the first byte
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidTask

KNOWN = ("replicas", "timeout", "create", "monitor", "evict_grace")
PREFIX = "holdfast"
PORT = 4222
TIMEOUT_SECONDS = 5.0
EVICT_GRACE_SECONDS = 10.0
REPLICAS = (1, 3, 5)
HOW = "write nats://host:port/prefix, or nats://host1:port,host2:port/prefix for a cluster"

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Options:
    servers: tuple[str, ...]
    prefix: str = PREFIX
    """Names the stream, and begins its subjects: two stores on one cluster differ in it."""
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    replicas: int | None = None
    """Copies of the stream, where it is made; None: three in a cluster, one on a single server."""
    timeout_seconds: float = TIMEOUT_SECONDS
    create: bool = True
    """Make the stream if it is missing."""
    monitor: str | None = field(default=None, repr=False)
    """A server's monitoring URL, for `holdfast doctor`: only there it shows how it syncs."""
    evict_grace_seconds: float = EVICT_GRACE_SECONDS
    """How long a worker may be unreachable before its leases are ended: its connection may be on its way back."""

    @property
    def label(self) -> str:
        return f"{','.join(self.servers)}/{self.prefix}"

    @property
    def stream(self) -> str:
        return f"HOLDFAST_{self.prefix}"


def parsed(url: str, given: dict[str, Any]) -> Options:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    prefix = unquote(parts.path.strip("/")) or PREFIX
    if parts.fragment or not _PREFIX.fullmatch(prefix):
        raise InvalidTask(f"a NATS URL ends with the store's prefix: letters, digits, - and _, 64 at most; {HOW}")
    chosen: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True)) | given
    for name in chosen:
        if name not in KNOWN:
            raise InvalidTask(f"the NATS store takes no parameter {name!r}; it knows {', '.join(KNOWN)}")
    user, has_password, password = credentials.partition(":")
    return Options(
        servers=tuple(_server(parts.scheme, host) for host in hosts.split(",")),
        prefix=prefix,
        user=unquote(user) if has_password else None,
        password=unquote(password) if has_password else None,
        token=unquote(user) if user and not has_password else None,
        replicas=_replicas(chosen.get("replicas")),
        timeout_seconds=_seconds(chosen.get("timeout", TIMEOUT_SECONDS), "timeout", least=0.1),
        create=_yes(chosen.get("create", True)),
        monitor=_monitor(chosen.get("monitor")),
        evict_grace_seconds=_seconds(chosen.get("evict_grace", EVICT_GRACE_SECONDS), "evict_grace", least=0.0),
    )


def _server(scheme: str, host: str) -> str:
    try:
        one = urlsplit(f"{scheme}://{host}")
        port = one.port or PORT
    except ValueError:
        raise InvalidTask(f"a NATS URL has a port that is none; {HOW}") from None
    if not one.hostname:
        raise InvalidTask(f"a NATS URL names no host; {HOW}")
    name = f"[{one.hostname}]" if ":" in one.hostname else one.hostname
    return f"{scheme}://{name}:{port}"


def _replicas(given: Any) -> int | None:
    if given is None:
        return None
    if str(given) not in {str(number) for number in REPLICAS}:
        raise InvalidTask(f"replicas is {given!r}; write 1, 3 or 5")
    return int(given)


def _seconds(given: Any, name: str, *, least: float) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not least <= seconds <= 600:
        raise InvalidTask(f"{name} is {given!r}; give seconds, at least {least:g} and at most 600")
    return seconds


def _yes(given: Any) -> bool:
    if given not in (True, False, "yes", "no"):
        raise InvalidTask(f"create is {given!r}; write yes or no")
    return given in (True, "yes")


def _monitor(given: Any) -> str | None:
    if given is not None and urlsplit(str(given)).scheme not in ("http", "https"):
        raise InvalidTask("monitor is no http URL; write monitor=http://host:8222")
    return None if given is None else str(given).rstrip("/")
