"""Dead letters, queues, workers, migrate and doctor."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

from tests.acceptance.cli_driver import Cli


def _dead_letters(cli: Cli, number: int) -> list[str]:
    made = [cli.enqueue("shop.fail", f"text {i}") for i in range(number)]
    cli.drain()
    return made


def test_dlq_lists_and_shows_dead_letters_only(cli: Cli) -> None:
    (dead,) = _dead_letters(cli, 1)
    alive = cli.enqueue("shop.add", "1")
    assert [task["id"] for task in cli.app("dlq", "list", "--json").lines] == [dead]
    assert "text 0" in cli.app("dlq", "list").out
    assert cli.app("dlq", "list", "--limit", "1").err.splitlines()[-1] == f"there may be more: --after {dead}"
    assert cli.app("dlq", "list", "--after", dead).err.splitlines()[-1] == "no dead letters"
    assert cli.app("dlq", "show", dead, "--json").json["last_error"]["message"] == "text 0"
    assert "shop.py" in cli.app("dlq", "show", dead).out
    assert cli.app("dlq", "show", alive).code == 3


def test_dlq_requeue_by_id(cli: Cli) -> None:
    (dead,) = _dead_letters(cli, 1)
    assert cli.app("dlq", "requeue", dead, "--json").json["status"] == "queued"
    assert cli.task(dead)["failures"] == 0


def test_acts_on_all_need_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    _dead_letters(cli, 2)
    for act in (["dlq", "purge"], ["dlq", "requeue", "--all"]):
        ran = cli.app(*act)
        assert ran.code == 2
        assert "--yes" in ran.err
    assert len(cli.app("dlq", "list", "--json").lines) == 2


def test_dlq_requeue_all_and_purge_say_how_many(cli: Cli) -> None:
    _dead_letters(cli, 2)
    assert cli.app("dlq", "purge", "--older-than", "7d", "--yes", "--json").json == {"purged": 0}
    assert cli.app("dlq", "requeue", "--all", "--queue", "elsewhere", "--yes", "--json").json == {"requeued": 0}
    assert cli.app("dlq", "requeue", "--all", "--yes", "--json").json == {"requeued": 2}
    cli.drain()
    assert cli.app("dlq", "purge", "--yes").out == "2 dead letters deleted\n"
    assert cli.app("tasks", "list", "--json").lines == []


def test_on_a_terminal_a_purge_asks_first(cli: Cli) -> None:
    _dead_letters(cli, 1)
    for answer, code, left in ((b"n\n", 1, 1), (b"y\n", 0, 0)):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", "--app", "shop:app", "dlq", "purge"],
            cwd=cli.folder,
            env=cli.environment,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.write(ours, answer)
        _, said = process.communicate(timeout=30)
        os.close(ours)
        os.close(theirs)
        assert b"Delete 1 dead letter for good?" in said
        assert process.returncode == code
        assert len(cli.app("dlq", "list", "--json").lines) == left


UNLIMITED = {"max_running": None, "rate": None, "burst": 1, "max_running_per_key": None}


def test_a_paused_queue_is_not_worked_on_until_it_is_resumed(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "--queue", "mail")
    assert cli.app("queues", "pause", "mail", "--json").json == {
        "name": "mail",
        "paused": True,
        "counts": {"queued": 1},
        "limits": UNLIMITED,
        "next_start_at": None,
    }
    assert "paused" in cli.app("queues", "list").out
    cli.drain()
    assert cli.task(task_id)["status"] == "queued"
    assert cli.app("queues", "resume", "mail").out == "queue mail is open\n"
    cli.drain()
    listed = {"name": "mail", "paused": False, "counts": {"completed": 1}, "limits": UNLIMITED, "next_start_at": None}
    assert cli.app("queues", "list", "--json").json == listed


def test_pausing_a_queue_that_never_was_says_which_may_be_meant(cli: Cli) -> None:
    cli.enqueue("shop.add", "1", "--queue", "mail")
    ran = cli.app("queues", "pause", "mial")
    assert ran.code == 0
    assert "did you mean 'mail'?" in ran.err


def test_workers_lists_who_is_there(cli: Cli) -> None:
    assert cli.app("workers").code == 0
    worker = cli.start("--app", "shop:app", "worker", "--queues", "a,b", "--queues", "c", "--worker-id", "w1")
    worker.wait_for("worker.started")
    info = cli.app("workers", "--json").json
    assert (info["id"], info["queues"], info["pid"]) == ("w1", ["a", "b", "c"], worker.process.pid)
    assert "shop.add" in info["names"]
    assert "alive" in cli.app("workers").out


def test_migrate_is_repeatable_and_check_says_whether_a_step_is_open(cli: Cli) -> None:
    check = cli.app("migrate", "--check", "--json")
    assert check.code == 1
    assert check.json["up_to_date"] is False
    assert "CREATE TABLE holdfast_tasks" in cli.app("migrate", "--sql").out
    assert not (cli.folder / "shop.db").exists()
    assert cli.app("migrate").code == 0
    assert cli.app("migrate", "--json").json == {"up_to_date": True, "done": []}
    assert cli.app("migrate", "--check", "--json").json == {"up_to_date": True, "open": []}
    assert cli.app("migrate", "--sql").out == ""


def test_doctor_is_well_on_a_fresh_store_and_warns_of_what_waits_for_nobody(cli: Cli) -> None:
    findings = cli.app("doctor", "--json")
    assert findings.code == 0, findings.out
    assert {"versions", "store", "clock", "workers", "dead letters"} <= {line["check"] for line in findings.lines}
    cli.enqueue("shop.add", "1", "--queue", "mail")
    ran = cli.app("doctor")
    assert ran.code == 0
    assert "no worker listens to it" in ran.out


def test_doctor_fails_where_a_check_fails(cli: Cli) -> None:
    ran = cli("doctor", "--url", "memory://x", "--json")
    assert ran.code == 1
    assert "fail" in {line["mark"] for line in ran.lines}
