"""`holdfast token`: who may call the dispatcher. The token itself is shown once, when it is made."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click

from holdfast import ids
from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.failures import TokenNotFound
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Group, Session, duration
from holdfast.cli.output import Cell, Styled
from holdfast.model.token import Scope, Token
from holdfast.policy import tokens
from holdfast.policy.admission import checked_span

SCOPES = ", ".join(scope.value for scope in Scope)


@click.group(cls=Group, examples=["holdfast token create --scope work,enqueue --name mailer", "holdfast token list"])
def token() -> None:
    """Tokens for the dispatcher: make, list and revoke them, where the store is."""


@token.command(
    examples=[
        "holdfast token create --scope work,enqueue --name mailer",
        "holdfast token create --scope read --expires-in 7d --json",
    ]
)
@click.option("--scope", "scopes", multiple=True, required=True, metavar="A,B", help=f"Of {SCOPES}.")
@click.option("--name", default="token", show_default=True, help="Whose it is, for people.")
@click.option("--expires-in", type=duration, help="For how long it is good; default for ever.")
@click.pass_obj
def create(session: Session, scopes: tuple[str, ...], name: str, expires_in: timedelta | None) -> None:
    """Make a token. It is shown now and never again: only its hash is kept."""
    wanted = [word.strip() for given in scopes for word in given.split(",") if word.strip()]
    lifetime = None
    if expires_in is not None:
        lifetime = checked_span(expires_in.total_seconds(), what="expires-in", above_zero=True)
    new, shown = tokens.made(
        name, wanted, lifetime_seconds=lifetime, token_hex=ids.token_hex, token_urlsafe=ids.token_urlsafe
    )

    async def add(app: Holdfast) -> Token:
        return await app.client.store.add_token(new)

    made = session.run(add)
    if session.json:
        output.put_json({"token": shown, **_public(made)})
        return
    output.put(shown)
    output.say(f"token {made.id} ({', '.join(made.scopes)}); it is not shown again: keep it as you would a password")


@token.command(name="list", examples=["holdfast token list", "holdfast token list --json"])
@click.pass_obj
def list_tokens(session: Session) -> None:
    """List the tokens, oldest first, the revoked ones too."""
    found, now = session.read(lambda app: app.client.store.tokens())
    headers = ("TOKEN", "STATE", "NAME", "SCOPES", "CREATED", "EXPIRES")
    nothing = "no tokens; make one: holdfast token create --scope work,enqueue"
    put_listing(session, found, headers, lambda one: _row(one, now), nothing=nothing, record=_public)


@token.command(examples=["holdfast token revoke 1f0c9a4de2b35877"])
@click.argument("token_id")
@click.pass_obj
def revoke(session: Session, token_id: str) -> None:
    """Make a token useless, on every dispatcher, within seconds."""

    async def act(app: Holdfast) -> bool:
        return await app.client.store.revoke_token(token_id)

    if not session.run(act):
        raise TokenNotFound(f"there is no token {token_id!r}; `holdfast token list` shows those that there are")
    if session.json:
        output.put_json({"id": token_id, "revoked": True})
    else:
        output.say(f"token {token_id} is revoked")


def _public(one: Token) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "scopes": one.scopes,
        "created_at": one.created_at,
        "expires_at": one.expires_at,
        "revoked_at": one.revoked_at,
    }


def _row(one: Token, now: datetime) -> list[Cell]:
    state = "good"
    if one.revoked_at is not None:
        state = "revoked"
    elif one.expires_at is not None and one.expires_at <= now:
        state = "expired"
    return [
        one.id,
        Styled(state, "ok" if state == "good" else "canceled"),
        one.name,
        ", ".join(one.scopes),
        output.when(one.created_at, now),
        "never" if one.expires_at is None else output.when(one.expires_at, now),
    ]
