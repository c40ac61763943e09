"""PostgreSQL's errors in Holdfast's words: what happened, to which store, what to do next.

Mistakes of this store's own SQL are not translated: they are bugs and look like bugs.
"""

from __future__ import annotations

import asyncio
from typing import NoReturn

import asyncpg

from holdfast.errors import Forbidden, HoldfastError, NotSupported, StoreUnavailable

Fault = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, asyncio.TimeoutError, EOFError)
"""What a call on a connection can raise."""

_REPEATABLE = ("40001", "40P01")
_ENDING = ("08", "57P", "25006")
"""The session is over, or it is one with a server that takes no writes (any more)."""

_WORDS = {
    "08": "the connection was lost",
    "25006": "it is read-only, a standby or a demoted primary; name the primary in the URL",
    "28": "it refuses this user; check user and password in the URL",
    "3D000": "there is no such database; create it, or name another in the URL",
    "53100": "its disk is full; free some space, then try again",
    "53300": "it has no connection left; raise max_connections, or run fewer workers",
    "53": "it is short of resources",
    "55P03": "somebody else holds a lock on it for too long; look for a long transaction",
    "57014": "a statement took too long",
    "57P": "it is starting, stopping, or an operator ended the session",
    "58": "its system reported an error; look into the server's log",
    "40": "others were at the same rows again and again",
}


_POOLER = ("26000", "42P05")
"""A statement that we have prepared is not there, or was there before: it is another session."""


def unnamed_pooler(label: str, why: str) -> NotSupported:
    return NotSupported(
        f"{label}: there is a pooler before the server ({why}); add ?pooler=transaction to the URL, "
        "or ?pooler=session if it gives every client a session of its own"
    )


def repeatable(error: BaseException) -> bool:
    """Nothing was done, and the same again will probably do."""
    return getattr(error, "sqlstate", None) in _REPEATABLE


def broken(error: BaseException) -> bool:
    """Is the connection of no more use? After an ordinary refusal it is as good as before."""
    state = getattr(error, "sqlstate", None)
    return not isinstance(error, asyncpg.PostgresError) or state is None or state.startswith(_ENDING)


def translated(error: BaseException, label: str) -> HoldfastError | None:
    """None for a bug of ours."""
    state = getattr(error, "sqlstate", None) or ""
    if state in _POOLER or "unsupported startup parameter" in str(error):
        return unnamed_pooler(label, str(error))
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Forbidden(
            f"{label}: {error}; grant it (`holdfast migrate --roles` shows how), or use another user's URL"
        )
    if isinstance(error, asyncpg.PostgresError):
        words = next((_WORDS[code] for code in (state, state[:3], state[:2]) if code in _WORDS), None)
        if words is None:
            return None
    elif isinstance(error, asyncpg.InterfaceError):
        if "closed" not in str(error):  # the driver's word for a misuse too, such as a wrong number of arguments
            return None
        words = "the connection was lost"
    elif isinstance(error, asyncio.TimeoutError):
        words = "it did not answer in time"
    else:
        words = "it cannot be reached; check that it runs and that host and port are right"
    return StoreUnavailable(f"{label}: {words} ({type(error).__name__}: {error}); the call can be made again")


def raise_translated(error: BaseException, label: str) -> NoReturn:
    words = translated(error, label)
    if words is None:
        raise error
    raise words from error
