"""The verbs for tokens; what they do stands in tokens.py."""

from __future__ import annotations

from holdfast.model.token import NewToken, Token
from holdfast.stores.postgres import tokens
from holdfast.stores.postgres.handle import Handle


class TokenVerbs(Handle):
    async def add_token(self, new: NewToken) -> Token:
        return await self._write_all(lambda session: tokens.add(session, new))

    async def token(self, token_id: str) -> Token | None:
        return await self._read(lambda session: tokens.get(session, token_id))

    async def tokens(self) -> list[Token]:
        return await self._read(tokens.listed)

    async def revoke_token(self, token_id: str) -> bool:
        return await self._write(lambda session: tokens.revoke(session, token_id))
