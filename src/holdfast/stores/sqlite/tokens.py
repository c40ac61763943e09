"""Who may call a dispatcher, as the store keeps it (contract C14.3). What a token is: policy/tokens.py."""

from __future__ import annotations

import sqlite3

import msgspec

from holdfast.clock import from_micros, maybe_from_micros, span_micros
from holdfast.model.token import NewToken, Scope, Token
from holdfast.stores.sqlite.statements import json_param, statement, text_param
from holdfast.stores.sqlite.tx import Tx

_scopes = msgspec.json.Decoder(tuple[Scope, ...])


def add(tx: Tx, new: NewToken) -> Token:
    """The same id once more finds the first."""
    lifetime = new.lifetime_seconds
    tx.run(
        "add_token",
        id=new.id,
        name=new.name,
        scopes=json_param(new.scopes),
        digest=new.digest,
        now=tx.now,
        expires_at=None if lifetime is None else tx.now + span_micros(lifetime),
    )
    return _shown(*tx.row("token", id=new.id))


def token(conn: sqlite3.Connection, token_id: str) -> Token | None:
    found = conn.execute(statement("token"), {"id": text_param(token_id)}).fetchone()
    return None if found is None else _shown(*found)


def listed(conn: sqlite3.Connection) -> list[Token]:
    return [_shown(*row) for row in conn.execute(statement("tokens"))]


def revoke(tx: Tx, token_id: str) -> bool:
    return tx.run("revoke_token", id=text_param(token_id), now=tx.now).rowcount == 1


def _shown(
    token_id: str,
    name: str,
    scopes: str,
    digest: str,
    created_at: int,
    expires_at: int | None,
    revoked_at: int | None,
) -> Token:
    return Token(
        id=token_id,
        name=name,
        scopes=_scopes.decode(scopes),
        digest=digest,
        created_at=from_micros(created_at),
        expires_at=maybe_from_micros(expires_at),
        revoked_at=maybe_from_micros(revoked_at),
    )
