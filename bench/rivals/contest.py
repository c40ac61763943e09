"""One rival at a time: its environment, its fresh store, its worker processes, and what the store shows of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from bench import servers
from holdfast.bench import stores
from holdfast.bench.snapshot import FED_AT_ONCE, WARM_UP_SHARE, held, windows

ROOT = Path(__file__).parent.parent.parent
VENVS = ROOT / "bench" / ".venvs"
STOP_SECONDS = 10.0
STALL_SECONDS = 60.0
"""A rival that does nothing for so long is given up."""


class Rival(NamedTuple):
    name: str
    packages: tuple[str, ...]
    """The first is the rival itself."""
    processes: int
    tasks: int
    setting: str
    open_sql: str = ""
    """True while the store still shows a task that is not done; empty where it cannot be asked cheaply."""
    open_keys: tuple[str, ...] = ()
    """Redis commands whose answers are 0 once all is done."""

    @property
    def script(self) -> str:
        return f"bench.rivals.{self.name.lower()}_noop"

    @property
    def python(self) -> Path:
        return VENVS / self.name.lower() / "bin" / "python"

    @property
    def on_redis(self) -> bool:
        return bool(self.open_keys)


class Missing(Exception):
    """What a rival needs and this machine does not have."""


def prepare(rival: Rival) -> str:
    """Make its environment, once; the version in it."""
    ready = VENVS / rival.name.lower() / ".ready"
    if not ready.exists():
        made = subprocess.run([sys.executable, "-m", "venv", ready.parent], capture_output=True, text=True)
        if made.returncode == 0:
            install = [str(rival.python), "-m", "pip", "install", "--quiet", *rival.packages]
            made = subprocess.run(install, capture_output=True, text=True)
        if made.returncode != 0:
            shutil.rmtree(ready.parent, ignore_errors=True)
            raise Missing(f"{rival.packages[0]} cannot be installed: {made.stderr.strip().splitlines()[-1]}")
        ready.touch()
    package = rival.packages[0].partition("[")[0]
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return subprocess.run([rival.python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


class Contest:
    """A fresh store of one rival, and its processes."""

    def __init__(self, rival: Rival, url: str, folder: Path) -> None:
        self._rival = rival
        self._url = url
        self._tally = folder / "tally"
        self._tally.touch()
        self._log = folder / "log"
        self._environment = os.environ | {"RIVAL_URL": url, "RIVAL_TALLY": str(self._tally)}

    def drained(self, tasks: int) -> float:
        """Tasks per second from the first handler until the store shows all of them done."""
        self._run("fill", str(tasks))
        stores.tidy(self._url)
        with self._workers():
            started = self._reached(1)
            self._reached(tasks)
            ended = self._reached_in_store()
        return tasks / (ended - started)

    def under_snapshot(self, seconds: float, queued: int, window: float) -> tuple[float, float]:
        """Handlers per second in the first and in the last seconds of a held snapshot, the queue kept deep."""
        self._run("fill", str(queued + FED_AT_ONCE))
        stores.tidy(self._url)
        with self._workers(), self._feeder():
            self._reached(int(queued * WARM_UP_SHARE))
            with held(self._url):
                return windows(self._begun, seconds, window)

    def _begun(self) -> int:
        return self._tally.stat().st_size

    def _reached(self, count: int) -> float:
        seen, since = self._begun(), time.monotonic()
        while seen < count:
            time.sleep(stores.LOOK_SECONDS)
            now = self._begun()
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > STALL_SECONDS:
                raise Missing(f"it stopped at {seen:,} of {count:,} tasks: {self._log.read_text()[-300:]}")
        return time.monotonic()

    def _reached_in_store(self) -> float:
        if self._rival.open_sql:
            return asyncio.run(_until_false(self._url, self._rival.open_sql))
        if self._rival.open_keys:
            _until_zero(self._url, self._rival.open_keys)
        return time.monotonic()

    def _run(self, *role: str) -> None:
        ran = subprocess.run(self._command(*role), env=self._environment, cwd=ROOT, capture_output=True, text=True)
        if ran.returncode != 0:
            raise Missing(f"{' '.join(role)} failed: {ran.stderr.strip()[-300:]}")

    def _command(self, *role: str) -> list[str]:
        return [str(self._rival.python), "-m", self._rival.script, *role]

    def setup(self) -> None:
        self._run("setup")

    @contextmanager
    def _workers(self) -> Iterator[None]:
        with self._log.open("ab") as log:
            running = [
                subprocess.Popen(
                    self._command("work"),
                    env=self._environment,
                    cwd=ROOT,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for _ in range(self._rival.processes)
            ]
        try:
            yield
        finally:
            for one in running:
                _end(one)

    @contextmanager
    def _feeder(self) -> Iterator[None]:
        """Keeps the queue as deep as it was: what has begun is fed again."""
        process = subprocess.Popen(
            self._command("feed"), env=self._environment, cwd=ROOT, stdin=subprocess.PIPE, text=True
        )
        over = threading.Event()
        thread = threading.Thread(target=self._feed, args=(process, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            process.terminate()
            process.wait()

    def _feed(self, process: subprocess.Popen[str], over: threading.Event) -> None:
        assert process.stdin is not None
        fed = 0
        while not over.wait(stores.LOOK_SECONDS):
            if self._begun() - fed >= FED_AT_ONCE:
                fed += FED_AT_ONCE
                process.stdin.write(f"{FED_AT_ONCE}\n")
                process.stdin.flush()


@contextmanager
def contest(rival: Rival) -> Iterator[Contest]:
    """On a store that nobody has used."""
    with tempfile.TemporaryDirectory(prefix="holdfast-rival-") as folder:
        made = Contest(rival, _fresh_store(rival), Path(folder))
        made.setup()
        yield made


def _fresh_store(rival: Rival) -> str:
    if not rival.on_redis:
        return asyncio.run(_fresh_database(f"rival_{rival.name.lower()}"))
    url = servers.redis()
    if url is None:
        raise Missing("no redis-server is installed (Debian: apt-get install redis-server)")
    _ask(url, "FLUSHALL")
    return url


async def _fresh_database(name: str) -> str:
    conn = await asyncpg.connect(servers.postgres())
    try:
        await conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        await conn.execute(f"CREATE DATABASE {name}")
    finally:
        await conn.close()
    return urlunsplit(urlsplit(servers.postgres())._replace(path=f"/{name}"))


async def _until_false(url: str, question: str) -> float:
    conn = await asyncpg.connect(url)
    try:
        while await conn.fetchval(question):  # noqa: ASYNC110  the rival tells nobody
            await asyncio.sleep(stores.LOOK_SECONDS)
        return time.monotonic()
    finally:
        await conn.close()


def _until_zero(url: str, questions: tuple[str, ...]) -> None:
    while any(_ask(url, question) != ":0" for question in questions):
        time.sleep(stores.LOOK_SECONDS)


def _ask(url: str, command: str) -> str:
    """One command to Redis, which also understands plain lines; one line of answer."""
    parts = urlsplit(url)
    with (
        socket.create_connection((parts.hostname or "", parts.port or 0)) as conn,
        conn.makefile("rw", newline="") as file,
    ):
        file.write(f"{command}\r\n")
        file.flush()
        return file.readline().strip()


def _end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started: it leads a session of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
