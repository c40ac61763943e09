"""The worker as people start and stop it: banner, signals, several processes."""

from __future__ import annotations

import os
import re
import signal

import msgspec

from tests.acceptance.cli_driver import Cli, Started, alive, eventually

WORKER = ("--app", "shop:app", "worker")


def _pids(supervisor: Started, count: int) -> list[int]:
    lines = supervisor.wait_for("process.started", count)
    return [int(re.findall(r"pid=(\d+)", line)[0]) for line in lines]


def test_it_tells_what_it_works_on_and_drains_until_idle(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "2")
    ran = cli.process(*WORKER, "--until-idle", "--concurrency", "7", "--queues", "default")
    assert ran.code == 0
    assert ran.out == ""
    for word in ("shop.db", "queues default", "7 slots", "pid", "shop.add"):
        assert word in ran.err
    task = cli.task(task_id)
    assert (task["status"], task["result"]) == ("completed", 3)


def test_without_an_app_it_says_how_to_name_one(cli: Cli) -> None:
    ran = cli("worker")
    assert ran.code == 2
    assert "--app" in ran.err
    assert "HOLDFAST_APP" in ran.err


def test_log_lines_in_json_are_json_throughout(cli: Cli) -> None:
    cli.enqueue("shop.fail", "x\x1b[31m")
    ran = cli.process(*WORKER, "--until-idle", "--log-format", "json", "--log-level", "debug")
    lines = [msgspec.json.decode(line) for line in ran.err.splitlines()]
    assert all({"ts", "level", "logger", "message"} <= set(line) for line in lines)
    assert any("task.failed" in line["message"] for line in lines)


def test_a_signal_lets_running_work_finish_and_exits_0(cli: Cli) -> None:
    waiting = [cli.enqueue("shop.wait", "1.5") for _ in range(3)]
    worker = cli.start(*WORKER, "--grace", "27")
    worker.wait_for("waiting", 3)
    worker.signal(signal.SIGTERM)
    assert worker.wait_for("finishing") == ["finishing 3 tasks, 27 s left, Ctrl-C again to abort"]
    assert worker.ended() == 0
    assert {cli.task(task_id)["status"] for task_id in waiting} == {"completed"}


def test_a_second_signal_aborts_gives_work_back_and_exits_1(cli: Cli) -> None:
    task_id = cli.enqueue("shop.wait", "3600")
    worker = cli.start(*WORKER)
    worker.wait_for("waiting")
    worker.signal(signal.SIGINT)
    worker.wait_for("finishing 1 task,")
    worker.signal(signal.SIGINT)
    assert worker.ended() == 1
    task = cli.task(task_id)
    assert (task["status"], task["failures"], task["claimed_by"]) == ("queued", 0, None)


def test_when_the_grace_time_is_over_the_rest_is_given_back_and_it_exits_0(cli: Cli) -> None:
    task_id = cli.enqueue("shop.wait", "3600")
    worker = cli.start(*WORKER, "--grace", "100ms")
    worker.wait_for("waiting")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    assert cli.task(task_id)["status"] == "queued"


def test_when_every_slot_is_stuck_the_task_is_settled_and_the_process_exits_1(cli: Cli) -> None:
    task_id = cli.enqueue("shop.block")
    ran = cli.process(*WORKER, "--concurrency", "1")
    assert ran.code == 1
    assert "every slot is stuck" in ran.err
    assert "shop.py" in ran.err
    task = cli.task(task_id)
    assert (task["status"], task["failures"], task["last_error"]["code"]) == ("queued", 1, "timeout")


def test_several_processes_share_the_work_and_stop_together(cli: Cli) -> None:
    waiting = [cli.enqueue("shop.wait", "1") for _ in range(4)]
    supervisor = cli.start(*WORKER, "--processes", "2", "--concurrency", "2", "--worker-id", "w")
    pids = _pids(supervisor, 2)
    supervisor.wait_for("waiting", 4)
    assert {worker["id"] for worker in cli.app("workers", "--json").lines} == {"w-1", "w-2"}
    supervisor.signal(signal.SIGTERM)
    assert supervisor.ended() == 0
    assert not [pid for pid in pids if alive(pid)]
    assert {cli.task(task_id)["status"] for task_id in waiting} == {"completed"}
    assert cli.app("workers", "--json").lines == []


def test_several_processes_until_idle(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1")
    assert cli.process(*WORKER, "--processes", "2", "--until-idle").code == 0
    assert cli.task(task_id)["status"] == "completed"


def test_a_second_signal_reaches_every_process(cli: Cli) -> None:
    for _ in range(2):
        cli.enqueue("shop.wait", "3600")
    supervisor = cli.start(*WORKER, "--processes", "2", "--concurrency", "1")
    supervisor.wait_for("waiting", 2)
    supervisor.signal(signal.SIGINT)
    supervisor.wait_for("finishing 1 task,", 2)
    supervisor.signal(signal.SIGINT)
    assert supervisor.ended() == 1


def test_a_process_that_is_killed_is_started_again(cli: Cli) -> None:
    supervisor = cli.start(*WORKER, "--processes", "2")
    victim, _ = _pids(supervisor, 2)
    supervisor.wait_for("worker.started", 2)
    os.kill(victim, signal.SIGKILL)
    assert "starting another" in supervisor.wait_for("process.died")[0]
    supervisor.wait_for("worker.started", 3)
    supervisor.signal(signal.SIGTERM)
    assert supervisor.ended() == 0


def test_the_processes_of_a_killed_supervisor_finish_and_go(cli: Cli) -> None:
    task_id = cli.enqueue("shop.wait", "1")
    supervisor = cli.start(*WORKER, "--processes", "2")
    pids = _pids(supervisor, 2)
    supervisor.wait_for("worker.started", 2)
    supervisor.wait_for("waiting")
    supervisor.signal(signal.SIGKILL)
    eventually(lambda: not [pid for pid in pids if alive(pid)], "the children go")
    assert cli.task(task_id)["status"] == "completed"
