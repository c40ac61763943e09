"""PostgreSQL servers that a test may stop, crash, restart, copy and promote: its own, not that of postgres_server.py.

A server ends with the test process at the latest, however that ends: a shell watches a pipe for that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

import asyncpg

from tests import postgres_server
from tests.runtime.support import wait_until

T = TypeVar("T")
How = Literal["fast", "immediate", "kill"]

HOW = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "kill": signal.SIGKILL}
"""Sessions are ended; or nothing is waited for and the next start recovers; or not even the server knows."""
WATCH = 'read _ || kill -QUIT "$0"'
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


class Node:
    """One server with its data, running or not."""

    def __init__(self, folder: Path, binaries: Path, user: int | None, **settings: str) -> None:
        self.port = postgres_server._free_port()
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self.address = f"127.0.0.1:{self.port}"
        self.data = folder / f"data-{self.port}"
        self._folder = folder
        self._binaries = binaries
        self._user = user
        self._settings = SETTINGS | {"unix_socket_directories": str(folder)} | settings
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
        self._copies: list[Node] = []

    def start(self) -> None:
        """Returns when it answers. After a kill its processes may need a moment to let go of the data."""
        options = [part for name, value in self._settings.items() for part in ("-c", f"{name}={value}")]
        command: list[str | Path] = [self._binaries / "postgres", "-D", self.data, "-p", str(self.port), *options]
        for _ in range(100):
            self._process = self._started(command, None)
            self._watch = self._started(["sh", "-c", WATCH, str(self._process.pid)], subprocess.PIPE)
            if self.run(self._answers):
                return
            self.stop()
        raise AssertionError("the server does not start")

    def stop(self, how: How = "fast") -> None:
        process, watch = self._process, self._watch
        if process is None or watch is None:
            return
        self._process = self._watch = None
        process.send_signal(HOW[how])
        process.wait(postgres_server.START_SECONDS)
        watch.communicate(b"over\n")

    def _started(self, command: Sequence[str | Path], stdin: int | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            start_new_session=True,
            **postgres_server._as(self._user),
        )

    def restart(self, how: How = "fast") -> None:
        self.stop(how)
        self.start()

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        """In an event loop of its own, also for those who are in one."""

        async def whole() -> T:
            return await work()

        with ThreadPoolExecutor(1) as threads:
            return threads.submit(lambda: asyncio.run(whole())).result()

    def ask(self, query: str, *values: Any) -> Any:
        return self.run(lambda: self._ask(query, *values))

    def tell(self, query: str) -> None:
        self.run(lambda: self._tell(query))

    def end_sessions(self) -> int:
        """Throw out everybody else who came over TCP; how many."""
        others = "pid <> pg_backend_pid() and backend_type = 'client backend'"
        return int(self.ask(f"select count(pg_terminate_backend(pid)) from pg_stat_activity where {others}"))

    def set(self, name: str, value: str) -> None:
        """In its configuration, at once; also for sessions that are open."""
        self.tell(f"alter system set {name} = {value}")
        self.tell("select pg_reload_conf()")

    def copied(self, **settings: str) -> Node:
        """A standby of this one, started, which follows it as `standby`."""
        standby = Node(self._folder, self._binaries, self._user, **(self._given() | settings))
        self._copies.append(standby)
        standby.follow(self)
        return standby

    def follow(self, primary: Node) -> None:
        """Become a standby of that one, with a copy of its data in the place of one's own, and start."""
        shutil.rmtree(self.data, ignore_errors=True)
        source = f"{primary.url}?application_name=standby"
        self.made_by("pg_basebackup", "-D", self.data, "-d", source, "-R", "-c", "fast")
        self.start()

    def wait_for_standby(self) -> None:
        """Until it is synchronous."""
        self.set("synchronous_standby_names", "'standby'")
        wait_until(lambda: self.ask("select sync_state from pg_stat_replication") == "sync", "the standby")

    def stop_all(self) -> None:
        for node in (self, *self._copies):
            node.stop("immediate")

    def promote(self) -> None:
        """Returns when it takes writes."""
        assert self.ask("select pg_promote(true, 30)")

    def made_by(self, program: str, *arguments: str | Path) -> None:
        ran = subprocess.run(
            [self._binaries / program, *arguments],
            capture_output=True,
            text=True,
            cwd=self._folder,
            **postgres_server._as(self._user),
        )
        assert ran.returncode == 0, ran.stderr

    def _given(self) -> dict[str, str]:
        return {name: value for name, value in self._settings.items() if SETTINGS.get(name) != value}

    async def _ask(self, query: str, *values: Any) -> Any:
        conn = await asyncpg.connect(self.url)
        try:
            return await conn.fetchval(query, *values)
        finally:
            await conn.close()

    async def _tell(self, query: str) -> None:
        conn = await asyncpg.connect(self.url)
        try:
            await conn.execute(query)
        finally:
            await conn.close()

    async def _answers(self) -> bool:
        """False where it has ended instead."""
        async with asyncio.timeout(postgres_server.START_SECONDS):
            while True:
                try:
                    conn = await asyncpg.connect(self.url)
                except (OSError, asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError):
                    if self._process is None or self._process.poll() is not None:
                        return False
                    await asyncio.sleep(0.02)
                    continue
                await conn.close()
                return True


@contextmanager
def fresh_node(**settings: str) -> Iterator[Node]:
    """A server of one's own, running. It and its copies are stopped and removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
    user = postgres_server.UNPRIVILEGED if os.geteuid() == 0 else None
    binaries = postgres_server._binaries(folder, user)
    if user is not None:
        os.chown(folder, user, user)
    node = Node(folder, binaries, user, **settings)
    node.made_by("initdb", "-D", node.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "-N")
    node.start()
    try:
        yield node
    finally:
        node.stop_all()
        shutil.rmtree(folder, ignore_errors=True)
