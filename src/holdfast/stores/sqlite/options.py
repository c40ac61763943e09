"""What a SQLite URL says: which file, how durable, how patient."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import InvalidTask

KNOWN = ("synchronous", "busy_timeout")
BUSY_SECONDS = 60.0
_EXAMPLES = "write sqlite:///tasks.db (beside you) or sqlite:////var/lib/tasks.db (from the root)"


@dataclass(frozen=True, slots=True)
class Options:
    path: str
    """Absolute, so that a later chdir does not change which file is meant."""
    synchronous: str = "full"
    """`full`: an acknowledged commit survives a power cut. `normal`: it survives the death of every process only."""
    busy_seconds: float = BUSY_SECONDS
    """How long a call waits for the file while others write, before StoreUnavailable."""


def parsed(url: str, given: dict[str, Any]) -> Options:
    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or parts.fragment or not path or path.endswith("/") or "\x00" in path:
        raise InvalidTask(f"{url!r} names no file; {_EXAMPLES}")
    if path == ":memory:":
        raise InvalidTask("a SQLite database in memory cannot be shared by threads or processes; use memory://name")
    chosen: dict[str, Any] = dict(parse_qsl(parts.query, keep_blank_values=True)) | given
    for name in chosen:
        if name not in KNOWN:
            raise InvalidTask(f"the SQLite store takes no parameter {name!r}; it knows {' and '.join(KNOWN)}")
    return Options(
        path=os.path.abspath(path),
        synchronous=_synchronous(chosen.get("synchronous", "full")),
        busy_seconds=_seconds(chosen.get("busy_timeout", BUSY_SECONDS)),
    )


def _synchronous(word: Any) -> str:
    if not isinstance(word, str) or word.lower() not in ("full", "normal"):
        raise InvalidTask(f"synchronous is {word!r}; write full (survives a power cut) or normal")
    return word.lower()


def _seconds(given: Any) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds <= 3600:
        raise InvalidTask(f"busy_timeout is {given!r}; give seconds, more than 0 and at most 3600")
    return seconds
