"""`holdfast serve`: the dispatcher in this process, until stopped. Exit code 0 after an orderly end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path

import click

from holdfast import ids
from holdfast.app import Holdfast
from holdfast.cli import logs, output
from holdfast.cli.options import Command, Session
from holdfast.dispatcher.admission import Terms
from holdfast.dispatcher.service import Dispatcher
from holdfast.dispatcher.serving import Address, Server
from holdfast.dispatcher.upkeep import Upkeep
from holdfast.errors import NotSupported
from holdfast.events import log
from holdfast.events.bus import Bus
from holdfast.runtime import own_process
from holdfast.runtime.stop_signals import StopSignals
from holdfast.stores.protocol import Store
from holdfast.version import __version__

OPEN = (
    "this store has no tokens: whoever is on this machine may call; to be reachable from others, make one with "
    "`holdfast token create` and choose a --host"
)


@click.command(
    cls=Command,
    examples=[
        "holdfast --url postgresql://user@host/db serve",
        "holdfast --url sqlite:///tasks.db serve --port 0",
        "holdfast serve --host 0.0.0.0 --certificate cert.pem --key key.pem",
        "holdfast serve --wakeup sqs://wake-ups",
    ],
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; elsewhere only with tokens.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--certificate", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="For TLS.")
@click.option("--key", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Of the certificate.")
@click.option("--wakeup", metavar="URL", help="Announce due tasks at sqs://queue-name or nats://host:port/prefix.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="console", show_default=True)
@click.pass_obj
def serve(
    session: Session,
    /,
    host: str,
    port: int,
    certificate: Path | None,
    key: Path | None,
    wakeup: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Answer HTTP in front of a store, for workers without access to the database, in any language.

    It also keeps the store going: expired leases, workflows, schedules, retention. Any number may run on one store.
    SIGTERM or Ctrl-C lets calls that are under way finish; a second one does not.
    """
    if (certificate is None) != (key is None):
        raise click.UsageError("TLS needs both --certificate and --key", click.get_current_context())
    if wakeup is not None:
        session.app.wake_by(wakeup)
    logs.configure(log_level, log_format)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    own_process.tune()
    address = Address(host=host, port=port, certificate=certificate, key=key)
    with asyncio.Runner(loop_factory=own_process.loop_factory()) as runner:
        # Lines of JSON are for programs: no talk beside them.
        runner.run(_serve(session, address, talk=log_format == "console"))


async def _serve(session: Session, address: Address, *, talk: bool) -> None:
    app = session.app
    async with app:
        store = app.client.store
        guarded = await _guarded(store)
        if not guarded and not address.local:
            raise click.UsageError(
                f"this store has no tokens, so the dispatcher cannot listen on {address.host}, where others reach it; "
                "make one first: holdfast token create --scope work,enqueue",
                click.get_current_context(),
            )
        with address.listen() as listening:
            server = Server(_dispatcher(app, always_tokens=not address.local), address)
            _say(session, address.url(listening), store.label, guarded=guarded, talk=talk)
            with StopSignals(server.stop):
                await server.serve(sockets=[listening])


async def _guarded(store: Store) -> bool:
    """Does the store have tokens? A store that is not there at the start is an error; later it would be an outage."""
    await store.now()
    if not store.capabilities.tokens:
        raise NotSupported(f"{store.label} keeps no tokens; serve a SQLite or PostgreSQL store")
    return bool(await store.tokens())


def _dispatcher(app: Holdfast, *, always_tokens: bool) -> Dispatcher:
    actor = f"dispatcher-{socket.gethostname()}-{os.getpid()}-{ids.nonce()}"
    return Dispatcher(
        app.connections.factory,
        upkeep=Upkeep(
            actor,
            Bus(log.write),
            retention=app.retention,
            sinks=app.registry.sinks,
            subscribers=app.registry.subscribers,
        ),
        terms=Terms(app.registry.defaults, app.payload_bytes),
        always_tokens=always_tokens,
    )


def _say(session: Session, url: str, label: str, *, guarded: bool, talk: bool) -> None:
    if session.json:
        output.put_json({"url": url, "store": label, "tokens": guarded, "pid": os.getpid()})
    elif talk:
        output.say(f"holdfast {__version__} dispatcher at {url} on {label}, pid {os.getpid()}")
    if not guarded and talk:
        output.say(f"warning: {OPEN}")
