"""What a PostgreSQL URL says: which servers, which schema, how patient. What is not ours is left to the driver.

Several hosts may be named, as libpq takes them: `postgresql://user@one:5432,two:5432/database`. The store writes, so
of these it always wants the one that takes writes; a URL that asks for a standby is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import InvalidTask

OURS = ("schema", "migrate", "pooler", "wakeups", "statement_timeout", "evict_grace")
SCHEMA = "holdfast"
STATEMENT_SECONDS = 30.0
EVICT_GRACE_SECONDS = 2.5
POOLERS = ("none", "session", "transaction")
MIGRATES = ("create", "always", "never")
_SCHEMA_BYTES = 63
_HOST = re.compile(r"(\[[^\]]+\]|[^:\[\]]*)(:(?P<port>\d{1,5}))?")
_STANDBYS = ("standby", "prefer-standby", "read-only")


@dataclass(frozen=True, slots=True)
class Options:
    dsn: str
    """As the driver wants it; it may hold a password."""
    hosts: tuple[str, ...]
    """The same once for each host that it names."""
    label: str
    """For people: without user, password and parameters."""
    schema: str = SCHEMA
    migrate: str = "create"
    """What opening does: make a schema that is missing, also bring an old one up to date, or nothing."""
    pooler: str = "none"
    """What stands before the server, by its mode."""
    wakeups: bool = True
    """Other processes are told, and heard, by LISTEN and NOTIFY; polling goes on in any case."""
    statement_seconds: float = STATEMENT_SECONDS
    """How long the server works on one statement before it gives up."""
    evict_grace_seconds: float = EVICT_GRACE_SECONDS
    """How long a worker's session may be gone before it counts as dead: it may just be coming back."""

    @property
    def pooled(self) -> bool:
        """A pooler hands every transaction another session: nothing may be left behind in one."""
        return self.pooler == "transaction"

    @property
    def quoted_schema(self) -> str:
        """As an identifier. The name was checked: this is the only text that is ever put into SQL."""
        return '"' + self.schema.replace('"', '""') + '"'


def parsed(url: str, given: dict[str, Any]) -> Options:
    parts = urlsplit(url)
    if parts.fragment:
        raise InvalidTask(f"the PostgreSQL URL holds a #; write it as %23: {_shown(url)}")
    asked = parse_qsl(parts.query, keep_blank_values=True)
    for name in given:
        if name not in OURS:
            raise InvalidTask(f"the PostgreSQL store takes no option {name!r}; it knows {', '.join(OURS)}")
    chosen: dict[str, Any] = {name: value for name, value in asked if name in OURS} | given
    _refuse_standbys(asked)
    others = [(name, value) for name, value in asked if name not in (*OURS, "target_session_attrs")]
    schema = _schema(chosen.get("schema", SCHEMA))
    return Options(
        dsn=_dsn(parts, parts.netloc, others),
        hosts=_hosts(parts, others),
        label=_shown(url) + ("" if schema == SCHEMA else f" schema {schema}"),
        schema=schema,
        migrate=_one_of(chosen, "migrate", MIGRATES),
        pooler=_one_of(chosen, "pooler", POOLERS),
        wakeups=_one_of(chosen, "wakeups", ("on", "off")) == "on",
        statement_seconds=_seconds(chosen, "statement_timeout", STATEMENT_SECONDS, lowest=0.001),
        evict_grace_seconds=_seconds(chosen, "evict_grace", EVICT_GRACE_SECONDS, lowest=0.0),
    )


def _refuse_standbys(asked: list[tuple[str, str]]) -> None:
    wanted = dict(asked).get("target_session_attrs")
    if wanted in _STANDBYS:
        raise InvalidTask(f"target_session_attrs is {wanted!r}, and the store writes; leave it out")


def _dsn(parts: SplitResult, netloc: str, query: list[tuple[str, str]]) -> str:
    return urlunsplit(("postgresql", netloc, parts.path, urlencode(query), ""))


def _hosts(parts: SplitResult, query: list[tuple[str, str]]) -> tuple[str, ...]:
    user, at, named = parts.netloc.rpartition("@")
    for host in named.split(","):
        found = _HOST.fullmatch(host)
        if found is None or int(found["port"] or 1) not in range(1, 65536):
            raise InvalidTask(f"{host!r} is not a host; write host:port, several with commas: {_shown(parts.geturl())}")
    if named:
        return tuple(_dsn(parts, f"{user}{at}{host}", query) for host in named.split(","))
    return tuple(_dsn(parts, parts.netloc, one) for one in _one_by_one(query))


def _one_by_one(query: list[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    """For hosts that stand among the parameters: `?host=one,two&port=5432,5433`, or one port for all."""
    asked = dict(query)
    hosts = asked.get("host", "").split(",")
    ports = asked.get("port", "").split(",")
    if len(hosts) == 1:
        return [query]
    if len(ports) not in (1, len(hosts)):
        raise InvalidTask(f"the PostgreSQL URL names {len(hosts)} hosts and {len(ports)} ports; give one for each")
    ports *= len(hosts) // len(ports)
    return [
        [*((asked | {"host": host, "port": port}) if port else asked | {"host": host}).items()]
        for host, port in zip(hosts, ports, strict=True)
    ]


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _schema(name: Any) -> str:
    """Any name that can stand in our scripts: two $ could end a function's body in one of them."""
    if not isinstance(name, str) or not name.isprintable() or "\\" in name or name.count("$") > 1:
        raise InvalidTask(f"schema is {name!r}; give a name without control characters, backslashes and a second $")
    if not 0 < len(name.encode()) <= _SCHEMA_BYTES:
        raise InvalidTask(f"schema is {name!r}; PostgreSQL's names have 1 to {_SCHEMA_BYTES} bytes")
    if name.startswith("pg_"):
        raise InvalidTask(f"schema is {name!r}; names with pg_ are PostgreSQL's own: give another")
    return name


def _one_of(chosen: dict[str, Any], name: str, words: tuple[str, ...]) -> str:
    """The first word is what is meant where nothing is said."""
    word = chosen.get(name, words[0])
    if word not in words:
        raise InvalidTask(f"{name} is {word!r}; write {', '.join(words[:-1])} or {words[-1]}")
    return str(word)


def _seconds(chosen: dict[str, Any], name: str, default: float, *, lowest: float) -> float:
    try:
        seconds = float(chosen.get(name, default))
    except (TypeError, ValueError):
        seconds = -1.0
    if not lowest <= seconds <= 3600:
        raise InvalidTask(f"{name} is {chosen[name]!r}; give seconds, at least {lowest:g} and at most 3600")
    return seconds
