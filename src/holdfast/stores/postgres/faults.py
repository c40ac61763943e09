"""PostgreSQL's errors in Holdfast's words: what happened, to which store, what to do next.

Facts relied on, all of asyncpg 0.30 and newer and of PostgreSQL 15 and newer:
- A connection that breaks under a call raises ConnectionDoesNotExistError (08003) whether or not the server has done
  the work, InterfaceError ("connection is closed") if it was known to be broken before, an OSError or a TimeoutError.
  One that the server has ended between two calls is not known to be broken for a moment: then an InternalClientError
  ("cannot switch to state …").
- A server that stops says 57P01, one that crashed 57P02, one that starts 57P03; one that takes no writes 25006, or,
  while connecting, TargetServerAttributeNotMatched.
- Refused TLS is a ConnectionError, a certificate that does not fit an ssl.SSLError, an unknown host a gaierror: all of
  them OSErrors.

Mistakes of this store's own SQL are not translated: they are bugs and look like bugs.
"""

from __future__ import annotations

import socket
import ssl
from typing import NoReturn

import asyncpg

from holdfast.errors import Forbidden, HoldfastError, NotSupported, StoreUnavailable
from holdfast.policy import refusals

NotPrimary = asyncpg.TargetServerAttributeNotMatched
Fault = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError, EOFError)
"""What a call on a connection can raise."""

_REPEATABLE = ("40001", "40P01")
_READ_ONLY = "25006"
_ENDING = ("08", "57P", "25P03", _READ_ONLY)
"""The session is over, or it is one with a server that takes no writes (any more)."""
_NUL = "22021"
_LASTING = ("28", "3D000")
"""What waiting does not heal: somebody has to change something."""

_WORDS = {
    "08": "the connection was lost",
    "25006": "it takes no writes, as a standby or a demoted primary; name the primary in the URL, or all hosts",
    "25P03": "a transaction was left open for too long",
    "28": "it refuses this user; check user and password in the URL, and the server's pg_hba.conf",
    "3D000": "there is no such database; create it, or name another in the URL",
    "53100": "its disk is full; free some space, then try again",
    "53300": "it has no connection left; raise max_connections, or run fewer workers",
    "53": "it is short of resources",
    "55P03": "somebody else holds a lock on it for too long; look for a long transaction",
    "57014": "a statement took too long",
    "57P": "it is starting, stopping, or an operator ended the session",
    "58": "its operating system reported an error; look into the server's log",
    "XX": "it reported an internal error; look into the server's log",
    "40": "others were at the same rows again and again",
}


_POOLER = ("26000", "42P05")
"""A statement that we have prepared is not there, or was there before: it is another session."""


def unnamed_pooler(label: str, why: str) -> NotSupported:
    return NotSupported(
        f"{label}: there is a pooler before the server ({why}); add ?pooler=transaction to the URL, "
        "or ?pooler=session if it gives every client a session of its own"
    )


def state_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def repeatable(error: BaseException) -> bool:
    """Nothing was done, and the same again will probably do."""
    # A migration has changed a table under a prepared statement; the driver prepares it anew.
    return state_of(error) in _REPEATABLE or isinstance(error, asyncpg.InvalidCachedStatementError)


def broken(error: BaseException) -> bool:
    """Is the connection of no more use? After an ordinary refusal it is as good as before."""
    state = state_of(error)
    return not isinstance(error, asyncpg.PostgresError) or not state or state.startswith(_ENDING)


def moved(error: BaseException) -> bool:
    """Does it say that this server takes no writes (any more)?"""
    return state_of(error) == _READ_ONLY


def lasting(error: BaseException) -> bool:
    return state_of(error).startswith(_LASTING) or isinstance(error, ssl.SSLError) or _refuses_tls(error)


def telling(error: BaseException) -> int:
    """Of what several hosts said, which to repeat: what a server said, above one that is none or not to be reached."""
    if isinstance(error, asyncpg.PostgresError):
        return 1 if state_of(error).startswith(_ENDING) else 3
    return 2 if isinstance(error, NotPrimary) else 0


def translated(error: BaseException, label: str) -> HoldfastError | None:
    """None for a bug of ours."""
    if state_of(error) in _POOLER or "unsupported startup parameter" in str(error):
        return unnamed_pooler(label, str(error))
    if _not_text(error):
        return refusals.not_text()
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return Forbidden(
            f"{label}: {error}; grant it (`holdfast migrate --roles` shows how), or use another user's URL"
        )
    words = _words(error)
    if words is None:
        return None
    heals = "waiting does not heal this" if lasting(error) else "the call can be made again"
    return StoreUnavailable(f"{label}: {words} ({type(error).__name__}: {error}); {heals}", lasting=lasting(error))


def _not_text(error: BaseException) -> bool:
    """The driver could not encode it, or the server takes no NUL."""
    return isinstance(error.__cause__, UnicodeEncodeError) or state_of(error) == _NUL


def _words(error: BaseException) -> str | None:
    if isinstance(error, asyncpg.PostgresError):
        state = state_of(error)
        return next((_WORDS[code] for code in (state, state[:3], state[:2]) if code in _WORDS), None)
    if isinstance(error, NotPrimary):
        return _WORDS[_READ_ONLY]
    if isinstance(error, asyncpg.InternalClientError):
        return "the connection was lost"
    if isinstance(error, asyncpg.InterfaceError):
        # The driver's word for a misuse too, such as a wrong number of arguments.
        return "the connection was lost" if "closed" in str(error) else None
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return _words_of_the_system(error)


def _words_of_the_system(error: BaseException) -> str:
    if isinstance(error, socket.gaierror):
        return "its host name is unknown; check the URL and the name service"
    if isinstance(error, ssl.SSLError):
        return "TLS failed; check its certificate, and sslmode and sslrootcert in the URL"
    if _refuses_tls(error):
        return "it refuses TLS, and the URL wants it; turn on ssl there, or change sslmode"
    return "it cannot be reached; check that it runs and that host and port are right"


def _refuses_tls(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) and "SSL upgrade" in str(error)


def raise_translated(error: BaseException, label: str) -> NoReturn:
    words = translated(error, label)
    if words is None:
        raise error
    raise words from error
