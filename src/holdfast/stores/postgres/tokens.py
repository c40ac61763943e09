"""The records of tokens (contract C14.3). How they are made and compared: policy/tokens.py."""

from __future__ import annotations

from typing import Any

from holdfast.clock import span_micros
from holdfast.model.token import NewToken, Scope, Token
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_text


async def add(session: Session, new: NewToken) -> Token:
    lifetime = None if new.lifetime_seconds is None else span_micros(new.lifetime_seconds)
    await session.rows("add_token", session.given, new.id, new.name, list(new.scopes), new.digest, lifetime)
    return _shown(await session.row("token", new.id))


async def get(session: Session, token_id: str) -> Token | None:
    row = await session.row("token", token_id) if is_text(token_id) else None
    return None if row is None else _shown(row)


async def listed(session: Session) -> list[Token]:
    return [_shown(row) for row in await session.rows("tokens")]


async def revoke(session: Session, token_id: str) -> bool:
    return is_text(token_id) and await session.value("revoke_token", session.given, token_id) is not None


def _shown(row: Any) -> Token:
    fields = dict(row)
    fields["scopes"] = tuple(Scope(scope) for scope in fields["scopes"])
    return Token(**fields)
