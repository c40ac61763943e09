"""What a PostgreSQL URL says: which server, which schema, how patient. What is not ours is left to the driver."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from holdfast.errors import InvalidTask

OURS = ("schema", "pooler", "wakeups", "statement_timeout", "evict_grace")
SCHEMA = "holdfast"
STATEMENT_SECONDS = 30.0
EVICT_GRACE_SECONDS = 2.5
_SCHEMA = re.compile(r"[^\W\d][\w$ -]*")
_SCHEMA_BYTES = 63


@dataclass(frozen=True, slots=True)
class Options:
    dsn: str
    """As the driver wants it; it may hold a password."""
    label: str
    """For people: without user, password and parameters."""
    schema: str = SCHEMA
    pooled: bool = False
    """A pooler hands every transaction another session: nothing may be left behind in one."""
    wakeups: bool = True
    """Other processes are told, and heard, by LISTEN and NOTIFY; polling goes on in any case."""
    statement_seconds: float = STATEMENT_SECONDS
    """How long the server works on one statement before it gives up."""
    evict_grace_seconds: float = EVICT_GRACE_SECONDS
    """How long a worker's session may be gone before it counts as dead: it may just be coming back."""

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
    others = urlencode([(name, value) for name, value in asked if name not in OURS])
    schema = _schema(chosen.get("schema", SCHEMA))
    return Options(
        dsn=urlunsplit(("postgresql", parts.netloc, parts.path, others, "")),
        label=_shown(url) + ("" if schema == SCHEMA else f" schema {schema}"),
        schema=schema,
        pooled=_pooled(chosen.get("pooler", "none")),
        wakeups=_wakeups(chosen.get("wakeups", "on")),
        statement_seconds=_seconds(chosen, "statement_timeout", STATEMENT_SECONDS, lowest=0.001),
        evict_grace_seconds=_seconds(chosen, "evict_grace", EVICT_GRACE_SECONDS, lowest=0.0),
    )


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _schema(name: Any) -> str:
    if not isinstance(name, str) or not _SCHEMA.fullmatch(name) or len(name.encode()) > _SCHEMA_BYTES:
        raise InvalidTask(
            f"schema is {name!r}; give a name of letters, digits, _, $, - and spaces, at most {_SCHEMA_BYTES} bytes"
        )
    if name.startswith("pg_"):
        raise InvalidTask(f"schema is {name!r}; names with pg_ are PostgreSQL's own: give another")
    return name


def _pooled(word: Any) -> bool:
    if word not in ("none", "transaction"):
        raise InvalidTask(f"pooler is {word!r}; write none, or transaction (PgBouncer's transaction mode)")
    return bool(word == "transaction")


def _wakeups(word: Any) -> bool:
    if word not in ("on", "off"):
        raise InvalidTask(f"wakeups is {word!r}; write on or off")
    return bool(word == "on")


def _seconds(chosen: dict[str, Any], name: str, default: float, *, lowest: float) -> float:
    try:
        seconds = float(chosen.get(name, default))
    except (TypeError, ValueError):
        seconds = -1.0
    if not lowest <= seconds <= 3600:
        raise InvalidTask(f"{name} is {chosen[name]!r}; give seconds, at least {lowest:g} and at most 3600")
    return seconds
