"""Who is told of changes (contract section 12): sinks, and the triggers that write what they are to be told.

A trigger stands on `holdfast_events` only while some sink wants its effect: a store that tells nobody pays nothing.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from holdfast.clock import from_micros, maybe_from_micros
from holdfast.model.outbox import Effect, NewSink, Sink
from holdfast.policy.relaying import COUNTED
from holdfast.stores.sqlite.statements import json_param, statement, text_param
from holdfast.stores.sqlite.tx import Tx

TRIGGERS = {Effect.ROUTE: "route", Effect.WAKE: "wake"}
_STANDING = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE 'holdfast\\_%' ESCAPE '\\'"


def declare(tx: Tx, new: NewSink) -> None:
    tx.run(
        "declare_sink",
        name=new.name,
        url=new.url,
        effect=new.effect,
        kinds=_maybe_json(new.kinds),
        queues=_maybe_json(new.queues),
        secret=new.secret,
        private=int(new.private),
        now=tx.now,
    )
    _arm(tx)


def delete(tx: Tx, name: str) -> bool:
    """From then on nothing is added. What waits for it goes in writes of its own (outbox_verbs.py)."""
    known = tx.run("delete_sink", sink=text_param(name)).rowcount == 1
    _arm(tx)
    return known


def stray(conn: sqlite3.Connection) -> str | None:
    """A sink that was deleted by a process that died before all that waited for it was gone."""
    found = conn.execute(statement("stray_sink")).fetchone()
    return None if found is None else str(found[0])


def listed(conn: sqlite3.Connection, now: int) -> list[Sink]:
    return [_shown(*row) for row in conn.execute(statement("sinks"), {"now": now, "most": COUNTED})]


def targets(conn: sqlite3.Connection) -> list[NewSink]:
    return [
        NewSink(
            name=name,
            url=url,
            effect=Effect(effect),
            kinds=_maybe_texts(kinds),
            queues=_maybe_texts(queues),
            secret=secret,
            private=bool(private),
        )
        for name, url, effect, kinds, queues, secret, private in conn.execute(statement("targets"))
    ]


def standing(conn: sqlite3.Connection) -> set[str]:
    """The names of the triggers that there are."""
    return {name for (name,) in conn.execute(_STANDING)}


def wanted(conn: sqlite3.Connection) -> set[str]:
    """The names of the triggers that there have to be."""
    return {
        f"holdfast_{TRIGGERS[Effect(effect)]}"
        for (effect,) in conn.execute("SELECT DISTINCT effect FROM holdfast_sinks")
    }


def _arm(tx: Tx) -> None:
    there, needed = standing(tx.conn), wanted(tx.conn)
    for trigger in TRIGGERS.values():
        name = f"holdfast_{trigger}"
        if name in needed and name not in there:
            tx.run(f"triggers/{trigger}")
        elif name in there and name not in needed:
            tx.run(f"triggers/drop_{trigger}")


def _maybe_json(texts: tuple[str, ...] | None) -> str | None:
    return None if texts is None else json_param(texts)


def _maybe_texts(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(msgspec.json.decode(text, type=list[str]))


def _shown(
    name: str,
    url: str,
    effect: str,
    kinds: str | None,
    queues: str | None,
    private: int,
    signed: int,
    created_at: int,
    waiting: str,
    dead: int,
) -> Sink:
    pending, oldest = _waiting.decode(waiting)
    return Sink(
        name=name,
        url=url,
        effect=Effect(effect),
        kinds=_maybe_texts(kinds),
        queues=_maybe_texts(queues),
        private=bool(private),
        signed=bool(signed),
        created_at=from_micros(created_at),
        pending=min(pending, COUNTED),
        dead=dead,
        oldest_at=maybe_from_micros(oldest),
    )


_waiting: msgspec.json.Decoder[Any] = msgspec.json.Decoder(tuple[int, int | None])
