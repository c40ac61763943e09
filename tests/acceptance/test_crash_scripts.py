"""Whole programs: handlers of a script that is `__main__`, signals to a worker, and what a killed one leaves behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.acceptance.processes import killed_at_the_end, start
from tests.runtime.support import running_nowhere, wait_until

SCRIPT = """
import logging, os, sys, time
from holdfast import Holdfast

app = Holdfast(sys.argv[1] if __name__ == "__main__" else "memory://")


@app.task(run_in="process")
def double(number: int) -> list[int]:
    return [2 * number, os.getpid()]


@app.task(run_in="process", max_attempts=2)
def hang(pid_file: str) -> None:
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(3600)


@app.task(takes_context=True)
def wait_for(ctx, gate: str) -> str:
    ctx.progress(1)
    while not os.path.exists(gate):
        time.sleep(0.01)
    return "finished"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    if sys.argv[2] == "once":
        handle = double.enqueue(21)
        app.worker().run(until_idle=True)
        print("doubled", handle.result(timeout=5)[0], handle.result(timeout=5)[1] != os.getpid())
    else:
        app.worker(poll_interval=0.1, grace=float(sys.argv[2])).run()
        print("left in peace")
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    file = tmp_path / "program.py"
    file.write_text(SCRIPT)
    return str(file)


def begun(app: Holdfast, task_id: str) -> bool:
    return any(event.kind == "task.progress" for event in app.tasks.events(task_id))


def test_a_handler_declared_in_the_main_script_runs_in_a_process(tmp_path: Path, script: str) -> None:
    log = tmp_path / "log"
    with killed_at_the_end(start([script, f"sqlite:///{tmp_path}/tasks.db", "once"], log=log)) as process:
        assert process.wait(60) == 0, log.read_text()
    assert "doubled 42 True" in log.read_text()


def test_no_child_outlives_a_worker_that_is_killed(tmp_path: Path, script: str) -> None:
    url, pid_file = f"sqlite:///{tmp_path}/tasks.db", tmp_path / "pid"
    with Holdfast(url) as app, killed_at_the_end(start([script, url, "5"], log=tmp_path / "log")) as process:
        app.enqueue("__main__.hang", str(pid_file))
        wait_until(lambda: pid_file.exists() and pid_file.read_text())
        process.kill()
        process.wait()
        wait_until(lambda: not alive(int(pid_file.read_text())), "the child to end")


def alive(pid: int) -> bool:
    """A process that has ended and was not collected by its new parent yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_what_runs_finish(tmp_path: Path, script: str, number: signal.Signals) -> None:
    url, gate, log = f"sqlite:///{tmp_path}/tasks.db", tmp_path / "gate", tmp_path / "log"
    with Holdfast(url) as app, killed_at_the_end(start([script, url, "60"], log=log)) as process:
        handle = app.enqueue("__main__.wait_for", str(gate))
        wait_until(lambda: begun(app, handle.id))
        os.kill(process.pid, number)
        later = app.enqueue("__main__.wait_for", str(gate))
        gate.touch()
        assert process.wait(60) == 0
        assert handle.task().result == "finished"
        assert later.task().failures == 0
        assert running_nowhere(app)
    assert "left in peace" in log.read_text()


def test_a_second_signal_aborts_and_gives_the_work_back(tmp_path: Path, script: str) -> None:
    url, log = f"sqlite:///{tmp_path}/tasks.db", tmp_path / "log"
    with Holdfast(url) as app, killed_at_the_end(start([script, url, "3600"], log=log)) as process:
        handle = app.enqueue("__main__.wait_for", str(tmp_path / "never"))
        wait_until(lambda: begun(app, handle.id))
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "worker.stopping" in log.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        task = handle.task()
        assert (task.status, task.attempt, task.failures) == ("queued", 1, 0)
        assert running_nowhere(app)
