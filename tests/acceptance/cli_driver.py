"""Runs the real command line, in this process or as one of its own, on SQLite files of its own."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec

from holdfast.cli.main import main

LONGEST_SECONDS = 30.0

SHOP = """
import asyncio
import sys
import time

from holdfast import Delays, Holdfast, current_task

app = Holdfast("sqlite:///shop.db")
other = "not an app"


@app.task(name="shop.add")
async def add(a: int, b: int = 0) -> int:
    return a + b


@app.task(name="shop.fail", max_attempts=1)
async def fail(text: str) -> None:
    raise ValueError(text)


@app.task(name="shop.flaky", backoff=Delays(3600))
async def flaky() -> None:
    raise ConnectionError("the far side hung up")


@app.task(name="shop.wait")
async def wait(seconds: float) -> str:
    print(f"waiting {current_task().id}", file=sys.stderr, flush=True)
    await asyncio.sleep(seconds)
    return "waited"


@app.task(name="shop.steps")
def steps(many: int) -> int:
    for done in range(1, many + 1):
        current_task().progress(done, many, "stepping")
    return many


@app.task(name="shop.block", timeout=0.2)
async def block() -> None:
    time.sleep(3600)
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        (line,) = self.lines
        return line

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, dict[str, str]] = msgspec.json.decode(self.err.splitlines()[-1])
        return found["error"]


class Cli:
    """The command line in a folder of its own, which holds shop.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP)
        self._started: list[Started] = []

    @property
    def environment(self) -> dict[str, str]:
        ours = ("HOLDFAST_", "TASK_", "NO_COLOR", "FORCE_COLOR", "COLUMNS")
        return {key: value for key, value in os.environ.items() if not key.startswith(ours)}

    def __call__(self, *arguments: str, **environment: str) -> Ran:
        """The whole command line, in this process: ten times as quick as one of its own."""
        out, err = io.StringIO(), io.StringIO()
        with self._here(environment), redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
        return Ran(code, out.getvalue(), err.getvalue())

    @contextmanager
    def _here(self, environment: dict[str, str]) -> Iterator[None]:
        path = list(sys.path)
        with chdir(self.folder), patch.dict(os.environ, self.environment | environment, clear=True):
            yield
        sys.path[:] = path
        for module in ("shop", "broken"):  # the next test has its own
            sys.modules.pop(module, None)

    def process(self, *arguments: str, **environment: str) -> Ran:
        """The same in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST_SECONDS * 2,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    def app(self, *arguments: str, **environment: str) -> Ran:
        return self("--app", "shop:app", *arguments, **environment)

    def drain(self) -> None:
        """A worker, until nothing is left to do now."""
        ran = self.process("--app", "shop:app", "worker", "--until-idle")
        assert ran.code == 0, ran.err

    def enqueue(self, *arguments: str) -> str:
        ran = self.app("enqueue", *arguments, "--json")
        assert ran.code == 0, ran.err
        task_id: str = ran.json["id"]
        return task_id

    def task(self, task_id: str) -> dict[str, Any]:
        ran = self.app("tasks", "show", task_id, "--json")
        assert ran.code == 0, ran.err
        record: dict[str, Any] = ran.json
        return record

    def start(self, *arguments: str) -> Started:
        started = Started([sys.executable, "-m", "holdfast", *arguments], self.folder, self.environment)
        self._started.append(started)
        return started

    def close(self) -> None:
        for started in self._started:
            started.close()


def _as_on_a_terminal() -> None:
    """Whoever is started in the background by a shell ignores Ctrl-C, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Started:
    """A process that is still running; what it says on stderr is read as it comes."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=_as_on_a_terminal,
        )
        self.said: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line.decode().rstrip("\n"))
                self._news.notify_all()

    def wait_for(self, text: str, count: int = 1) -> list[str]:
        """The lines that hold `text`, once there are `count` of them."""
        with self._news:
            self._news.wait_for(lambda: sum(text in line for line in self.said) >= count, LONGEST_SECONDS)
            found = [line for line in self.said if text in line]
        assert len(found) >= count, f"{text!r} was not said {count} times in:\n" + "\n".join(self.said)
        return found

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Its exit code, with everything it said read."""
        code = self.process.wait(LONGEST_SECONDS)
        self._reader.join(LONGEST_SECONDS)
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(LONGEST_SECONDS)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Look again and again, for a bounded time: for what only another process can tell."""
    ends_at = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < ends_at, f"never: {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether this process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"
