"""Who may call (contract C14.3): bearer tokens, and, while a store has none, whoever is on this machine.

A token is found by its id and compared in constant time (policy/tokens.py). What was read of it holds for a few
seconds, so a revoked one works no longer than that. A store that has ever had a token is never open again.

Without tokens anybody on this machine may call, but no web page that their browser shows: the names by which it was
called, and the page that called, must be this machine's (DNS rebinding).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import Forbidden, Unauthorized
from holdfast.model.token import Scope, Token
from holdfast.policy import tokens
from holdfast.stores.protocol import Store

FRESH_SECONDS = 5.0
KEPT_MOST = 10_000
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})

HOW = "send `Authorization: Bearer hf_…`; make a token with `holdfast token create`"


class Caller(msgspec.Struct, frozen=True):
    name: str
    scopes: frozenset[Scope]


SOMEBODY_HERE = Caller("local", frozenset(Scope))


class _Read(msgspec.Struct, frozen=True):
    """What was read of the store, when by our clock, and what its own clock said then."""

    record: Token | None
    at: float
    now: datetime

    @property
    def age(self) -> float:
        return SYSTEM_CLOCK.monotonic() - self.at


class Guard:
    def __init__(self, store: Store, *, always: bool) -> None:
        """`always`: a token is needed whatever the store has."""
        self._store = store
        self._closed = always
        self._looked_at = float("-inf")
        self._reads: dict[str, _Read] = {}

    async def caller(self, headers: Mapping[bytes, bytes]) -> Caller:
        shown = headers.get(b"authorization")
        if shown is not None:
            return await self._by_token(shown)
        if await self._needs_token():
            raise Unauthorized(f"this dispatcher needs a token: {HOW}")
        _check_local(headers)
        return SOMEBODY_HERE

    async def _by_token(self, shown: bytes) -> Caller:
        kind, _, word = shown.decode("latin-1").partition(" ")
        found = tokens.parts(word.strip()) if kind.lower() == "bearer" else None
        if found is None:
            raise Unauthorized(f"what was sent as authorization is no token; {HOW}")
        token_id, secret = found
        read = await self._read(token_id)
        if not tokens.is_good(read.record, secret, read.now + timedelta(seconds=read.age)):
            raise Unauthorized("this token is not known, or has been revoked, or has expired")
        assert read.record is not None
        return Caller(read.record.name, frozenset(read.record.scopes))

    async def _read(self, token_id: str) -> _Read:
        known = self._reads.get(token_id)
        if known is not None and known.age < FRESH_SECONDS:
            return known
        began = SYSTEM_CLOCK.monotonic()
        read = _Read(await self._store.token(token_id), began, await self._store.now())
        if len(self._reads) >= KEPT_MOST:
            self._reads.clear()
        self._reads[token_id] = read
        return read

    async def _needs_token(self) -> bool:
        now = SYSTEM_CLOCK.monotonic()
        if not self._closed and now - self._looked_at >= FRESH_SECONDS:
            self._closed = bool(await self._store.tokens())
            self._looked_at = now
        return self._closed


def _check_local(headers: Mapping[bytes, bytes]) -> None:
    host = _name(f"//{headers.get(b'host', b'').decode('latin-1')}")
    origin = headers.get(b"origin")
    if host not in LOCAL_NAMES or (origin is not None and _name(origin.decode("latin-1")) not in LOCAL_NAMES):
        raise Forbidden("without tokens this dispatcher answers only calls that are made to, and from, this machine")


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def check_scope(caller: Caller, *wanted: Scope) -> None:
    """Any of these will do."""
    if caller.scopes.isdisjoint(wanted):
        words = " or ".join(scope.value for scope in wanted)
        raise Forbidden(f"this call needs the scope {words}, which the token {caller.name!r} does not have")
