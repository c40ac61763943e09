"""What the URL of a dispatcher says: where it is, and the token, which is kept out of everything that people read.

The token stands in the URL's user part (`https://hf_…@host`), else in the option `token`, else in HOLDFAST_TOKEN.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from holdfast.errors import InvalidTask

OURS = ("token", "timeout", "wakeups", "answer_bytes")
TIMEOUT_SECONDS = 30.0
"""For one call. A statement of the store behind may take as long."""
ANSWER_BYTES = 1280 << 20
"""A claim of 1000 tasks of 1 MiB each fits. Pages that do not are asked for in smaller ones (caller.py)."""


@dataclass(frozen=True, slots=True)
class Options:
    base: str
    """Without a slash at its end."""
    token: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS
    answer_bytes: int = ANSWER_BYTES
    """The largest answer that is taken."""
    wakeups: bool = True
    """The dispatcher is asked to tell when there is something to do; polling goes on in any case."""

    @property
    def label(self) -> str:
        return self.base


def parsed(url: str, given: dict[str, Any]) -> Options:
    parts = urlsplit(url)
    for name in given:
        if name not in OURS:
            raise InvalidTask(f"a dispatcher takes no option {name!r}; it knows {', '.join(OURS)}")
    if parts.query or parts.fragment:
        raise InvalidTask(f"the URL of a dispatcher has no ? and no #; give options as arguments: {_shown(parts)}")
    if not parts.hostname:
        raise InvalidTask("the URL of a dispatcher names no host; write http://host:port or https://host")
    _ensure_port(parts)
    return Options(
        base=_shown(parts),
        token=_token(parts, given.get("token")),
        timeout_seconds=_seconds(given.get("timeout", TIMEOUT_SECONDS)),
        answer_bytes=_bytes(given.get("answer_bytes", ANSWER_BYTES)),
        wakeups=_on(given.get("wakeups", "on")),
    )


def _shown(parts: SplitResult) -> str:
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"


def _ensure_port(parts: SplitResult) -> None:
    try:
        assert parts.port != 0
    except (ValueError, AssertionError):
        raise InvalidTask(f"the URL of a dispatcher has no usable port: {_shown(parts)}") from None


def _token(parts: SplitResult, given: Any) -> str | None:
    if parts.password is not None:
        raise InvalidTask(f"a dispatcher takes a token, no password; write {parts.scheme}://TOKEN@{parts.hostname}")
    token = unquote(parts.username) if parts.username else given or os.environ.get("HOLDFAST_TOKEN") or None
    if token is not None and not (isinstance(token, str) and token.isascii() and token.isprintable()):
        raise InvalidTask("the token for the dispatcher is not one; `holdfast token create` makes one")
    return token


def _seconds(given: Any) -> float:
    try:
        seconds = float(given)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0.001 <= seconds <= 3600:
        raise InvalidTask(f"timeout is {given!r}; give seconds, at least 0.001 and at most 3600")
    return seconds


def _bytes(given: Any) -> int:
    try:
        number = int(given)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise InvalidTask(f"answer_bytes is {given!r}; give a number of bytes")
    return number


def _on(given: Any) -> bool:
    if given not in ("on", "off"):
        raise InvalidTask(f"wakeups is {given!r}; write on or off")
    return bool(given == "on")
