"""The memory store's tokens."""

from __future__ import annotations

import msgspec

from holdfast.clock import from_micros, span_micros
from holdfast.model.token import NewToken, Token
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.handle import Handle


class TokenVerbs(Handle):
    async def add_token(self, new: NewToken) -> Token:
        with self._state.lock:
            now = self._now()
            ensure_text(new)
            lifetime = new.lifetime_seconds
            made = Token(
                id=new.id,
                name=new.name,
                scopes=new.scopes,
                digest=new.digest,
                created_at=from_micros(now),
                expires_at=None if lifetime is None else from_micros(now + span_micros(lifetime)),
                revoked_at=None,
            )
            return self._state.tokens.setdefault(new.id, made)

    async def token(self, token_id: str) -> Token | None:
        with self._state.lock:
            self._now()
            return self._state.tokens.get(token_id)

    async def tokens(self) -> list[Token]:
        with self._state.lock:
            self._now()
            return list(self._state.tokens.values())

    async def revoke_token(self, token_id: str) -> bool:
        with self._state.lock:
            now = self._now()
            known = self._state.tokens.get(token_id)
            if known is not None and known.revoked_at is None:
                self._state.tokens[token_id] = msgspec.structs.replace(known, revoked_at=from_micros(now))
            return known is not None
