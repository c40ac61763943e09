"""What a channel to a sink answers for: it tells rows of the outbox, and says of each how that went.

When a row is tried again, or given up, is decided by policy/relaying.py; when a sink is left alone for a while, by
maintenance/posts.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.model.event import Event
from holdfast.model.outbox import OutboxRow
from holdfast.policy.error_text import error_info, safe_text

TELL_SECONDS = 45.0
"""A relay waits so long for `tell`, at most."""
ERROR_CHARS = 500


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """How it went with one row; `error` is None where it was delivered."""

    error: str | None = None
    blame: bool = True
    """False: the sink could not be reached, or did not judge: this row did nothing wrong."""
    silent: bool = False
    """It was told, and no answer came: whether that is the row's fault, the relay finds out (policy/silence.py)."""
    final: bool = False
    delay_seconds: float | None = None


DELIVERED = Answer()


def unreached(error: BaseException | str) -> Answer:
    return Answer(error=error if isinstance(error, str) else described(error), blame=False)


def described(error: BaseException) -> str:
    info = error_info(error)
    return safe_text(f"{info.code}: {info.message}", ERROR_CHARS)


class Channel(Protocol):
    """For one event loop. Rows of one call are of different tasks: their order among each other is free.

    One that answers `silent` is called a second time while a call is under way: rows that met silence are told apart.
    """

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        """One answer each, in order. What it raises means that the sink could not be reached."""

    async def close(self) -> None: ...


Subscriber = Callable[[Event], Awaitable[Any] | Any]
"""What `@app.subscribe` declares."""
