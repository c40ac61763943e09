"""The tokens of a SQLite handle: each verb is one call on the engine (see tokens.py)."""

from __future__ import annotations

from holdfast.model.token import NewToken, Token
from holdfast.stores.sqlite import tokens
from holdfast.stores.sqlite.handle import Handle


class TokenVerbs(Handle):
    async def add_token(self, new: NewToken) -> Token:
        return await self._engine.write(lambda tx: tokens.add(tx, new))

    async def token(self, token_id: str) -> Token | None:
        return await self._engine.read(lambda conn: tokens.token(conn, token_id))

    async def tokens(self) -> list[Token]:
        return await self._engine.read(tokens.listed)

    async def revoke_token(self, token_id: str) -> bool:
        return await self._engine.write(lambda tx: tokens.revoke(tx, token_id))
