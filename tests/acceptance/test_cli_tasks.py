"""Looking at tasks and acting on them: shapes of the JSON, hostile text, reasons, following."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from holdfast import Task
from tests.acceptance.cli_driver import Cli

HOSTILE = "\x1b[31mred\x1b]0;title\x07\r\x9b2J\u202e\u2028 end"
PRINTED_BY_NOBODY = ("\x1b", "\x07", "\r", "\x9b", "\u202e", "\u2028")


def test_enqueue_takes_json_values_or_else_strings(cli: Cli) -> None:
    ran = cli(
        *(
            "--url",
            "sqlite:///own.db",
            "enqueue",
            "any",
            "7",
            '"7"',
            "seven",
            "null",
            "[1, 2]",
            '{"a": 1.5}',
            "-5",
            "NaN",
        ),
        *("--kw", "x=3", "--kw", "y=plain text", "--kw", "z=a=b"),
        *("--queue", "mail", "--priority", "-3", "--delay", "2h", "--max-attempts", "0", "--timeout", "1m"),
        *("--concurrency-key", "c", "--run-id", "r", "--meta", '{"m": 1}', "--json"),
    )
    assert set(ran.json) == {"id", "created"}
    assert ran.json["created"] is True
    task = cli("--url", "sqlite:///own.db", "tasks", "show", ran.json["id"], "--json").json
    assert task["payload"] == {
        "args": [7, "7", "seven", None, [1, 2], {"a": 1.5}, -5, "NaN"],
        "kwargs": {"x": 3, "y": "plain text", "z": "a=b"},
    }
    wanted = {"queue": "mail", "priority": -3, "max_attempts": 0, "timeout": 60.0, "meta": {"m": 1}}
    assert wanted.items() <= task.items()
    assert (task["concurrency_key"], task["run_id"], task["status"]) == ("c", "r", "queued")


def test_enqueue_prints_the_id_alone_and_the_same_key_gives_it_again(cli: Cli) -> None:
    first = cli("enqueue", "any", "--idempotency-key", "k", "--url", "sqlite:///own.db")
    again = cli("enqueue", "any", "--idempotency-key", "k", "--url", "sqlite:///own.db")
    assert first.out == again.out
    assert len(first.out.strip()) == 36
    ran = cli("enqueue", "any", "--idempotency-key", "k", "--url", "sqlite:///own.db", "--json")
    assert ran.json == {"id": first.out.strip(), "created": False}


def test_enqueue_with_an_app_checks_the_call_and_uses_its_policy(cli: Cli) -> None:
    assert cli.app("enqueue", "shop.add", "1", "2", "3").code == 2
    assert cli.task(cli.enqueue("shop.fail", "x"))["max_attempts"] == 1


def test_enqueue_with_an_app_refuses_a_slip_of_a_name_and_submits_a_foreign_one(cli: Cli) -> None:
    ran = cli.app("enqueue", "shop.ad", "1")
    assert ran.code == 3
    assert "did you mean 'shop.add'?" in ran.err
    assert cli.app("enqueue", "shop.ad", "1", "--any-name").code == 0
    assert cli.app("enqueue", "elsewhere", "1").code == 0


def test_show_gives_the_whole_record_and_never_a_token(cli: Cli) -> None:
    task = cli.task(cli.enqueue("shop.add", "1"))
    assert set(task) == set(Task.__struct_fields__)
    assert task["created_at"].endswith("Z")
    assert "token" not in msgspec.json.encode(task).decode()


def test_show_for_people_names_every_field_that_is_set(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "--delay", "5m")
    shown = cli.app("tasks", "show", task_id).out
    assert task_id in shown
    assert "scheduled" in shown
    assert "(in 5 m)" in shown
    assert '{"args":[1],"kwargs":{}}' in shown


def test_list_filters_and_pages(cli: Cli) -> None:
    ids = [cli.enqueue("shop.add", str(number)) for number in range(3)]
    other = cli.enqueue("shop.add", "1", "--queue", "mail", "--run-id", "r")
    newest = cli.app("tasks", "list", "--limit", "2", "--json").lines
    assert [task["id"] for task in newest] == [other, ids[2]]
    rest = cli.app("tasks", "list", "--after", ids[2], "--json").lines
    assert [task["id"] for task in rest] == [ids[1], ids[0]]
    for filtered in (["--queue", "mail"], ["--run-id", "r"], ["--status", "queued", "--limit", "1"]):
        assert [task["id"] for task in cli.app("tasks", "list", *filtered, "--json").lines] == [other]
    assert cli.app("tasks", "list", "--name", "shop.wait", "--json").lines == []


def test_list_of_an_unknown_queue_names_the_nearest(cli: Cli) -> None:
    cli.enqueue("shop.add", "1", "--queue", "mail")
    ran = cli.app("tasks", "list", "--queue", "mial")
    assert ran.code == 0
    assert "did you mean 'mail'?" in ran.err


def test_events_come_oldest_first_in_the_records_own_names(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "2")
    cli.drain()
    events = cli.app("tasks", "events", task_id, "--json").lines
    assert [event["kind"] for event in events] == ["task.enqueued", "task.running", "task.completed"]
    assert set(events[0]) == {"id", "ts", "task_id", "run_id", "kind", "actor", "payload"}
    assert "task.running" in cli.app("tasks", "events", task_id).out


def test_acts_show_the_record_as_it_is_afterwards(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1")
    assert cli.app("tasks", "cancel", task_id, "--json").json["status"] == "canceled"
    assert cli.app("tasks", "retry", task_id, "--json").json["status"] == "queued"
    assert cli.app("tasks", "cancel", task_id).out == f"{task_id} is canceled\n"
    assert cli.app("tasks", "delete", task_id, "--json").json == {"id": task_id, "deleted": True}
    assert cli.app("tasks", "show", task_id).code == 3


def test_an_act_on_several_does_what_it_can_and_exits_with_the_worst(cli: Cli) -> None:
    first, second = cli.enqueue("shop.add", "1"), cli.enqueue("shop.add", "2")
    ran = cli.app("tasks", "cancel", first, "no-such-id", second)
    assert ran.code == 3
    assert ran.out.count("is canceled") == 2
    assert "no-such-id" in ran.err


# Hostile text


def _plant(cli: Cli) -> str:
    """A dead letter whose every text is hostile, put there by a program: the command line refuses some of it."""
    planted = f"""
import sys
from holdfast import Holdfast
app = Holdfast("sqlite:///shop.db")
@app.task(name="evil\\u202ename", queue="q\\u2028", max_attempts=1)
async def evil(text):
    raise ValueError(text)
handle = evil.using(meta={{"m": {HOSTILE!r}}}).enqueue({HOSTILE!r})
app.worker().run(until_idle=True)
print(handle.id)
"""
    done = subprocess.run(
        [sys.executable, "-c", planted], cwd=cli.folder, env=cli.environment, capture_output=True, check=True
    )
    return done.stdout.decode().strip()


def test_nothing_from_a_task_reaches_the_terminal_unescaped(cli: Cli) -> None:
    task_id = _plant(cli)
    commands = [
        ["tasks", "list"],
        ["tasks", "show", task_id],
        ["tasks", "why", task_id],
        ["tasks", "events", task_id],
        ["tasks", "watch", task_id],
        ["dlq", "list"],
        ["dlq", "show", task_id],
        ["queues", "list"],
        ["doctor"],
        ["tasks", "cancel", task_id],
        ["enqueue", "any", "--idempotency-key", HOSTILE],
    ]
    for command in commands:
        for form in ([], ["--json"]):
            ran = cli(*command, *form, "--url", "sqlite:///shop.db")
            shown = ran.out + ran.err
            assert shown, command
            assert not [char for char in PRINTED_BY_NOBODY if char in shown], (command, shown)


def test_json_of_hostile_text_is_still_exact(cli: Cli) -> None:
    task = cli.task(_plant(cli))
    assert task["payload"]["args"] == [HOSTILE]
    assert task["meta"] == {"m": HOSTILE}
    assert task["name"] == "evil\u202ename"


# Why


def _why(cli: Cli, task_id: str) -> dict[str, Any]:
    ran = cli.app("tasks", "why", task_id, "--json")
    assert ran.code == 0
    answer: dict[str, Any] = ran.json
    assert {"reason", "text", "command", "also"} <= set(answer)
    return answer


def test_why_a_scheduled_task_is_not_running(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "--delay", "5m")
    answer = _why(cli, task_id)
    assert answer["reason"] == "not_due"
    assert "in 5 m" in answer["text"]
    assert [also["reason"] for also in answer["also"]] == ["no_worker"]
    assert "not due until" in cli.app("tasks", "why", task_id).out


def test_why_a_task_in_a_paused_queue_is_not_running_and_what_helps(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1", "--queue", "the mail")
    cli.app("queues", "pause", "the mail")
    answer = _why(cli, task_id)
    assert answer["reason"] == "paused"
    assert answer["command"] == "holdfast queues resume 'the mail'"


def test_why_nobody_works_on_it(cli: Cli) -> None:
    assert _why(cli, cli.enqueue("shop.add", "1"))["reason"] == "no_worker"


def test_why_a_retrying_task_waits_with_its_error(cli: Cli) -> None:
    task_id = cli.enqueue("shop.flaky")
    cli.drain()
    answer = _why(cli, task_id)
    assert answer["reason"] == "retrying"
    assert "failure 1 of 5" in answer["text"]
    assert "hung up" in answer["text"]


@pytest.mark.parametrize(("name", "reason"), [("shop.add", "completed"), ("shop.fail", "failed")])
def test_why_of_an_ended_task_says_how_it_ended(cli: Cli, name: str, reason: str) -> None:
    task_id = cli.enqueue(name, "1")
    cli.drain()
    assert _why(cli, task_id)["reason"] == reason


def test_why_of_a_canceled_task(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1")
    cli.app("tasks", "cancel", task_id)
    assert _why(cli, task_id)["command"] == f"holdfast tasks retry {task_id}"


def test_why_while_a_worker_lives(cli: Cli) -> None:
    running = cli.enqueue("shop.wait", "60")
    worker = cli.start("--app", "shop:app", "worker", "--concurrency", "1", "--queues", "default", "--worker-id", "w1")
    worker.wait_for("waiting")
    answer = _why(cli, running)
    assert answer["reason"] == "running"
    assert "on w1" in answer["text"]
    ahead, behind = cli.enqueue("shop.add", "1"), cli.enqueue("shop.add", "2")
    assert _why(cli, ahead)["reason"] == "busy"
    assert "1 of 1 slots taken" in _why(cli, behind)["text"]
    assert "1 task ahead" in _why(cli, behind)["text"]
    assert _why(cli, cli.enqueue("elsewhere"))["reason"] == "unknown_name"
    assert _why(cli, cli.enqueue("shop.add", "1", "--queue", "mail"))["reason"] == "no_worker"


# Watch


def test_watch_follows_a_task_to_its_end(cli: Cli) -> None:
    task_id = cli.enqueue("shop.steps", "3")
    cli.start("--app", "shop:app", "worker")
    ran = cli.process("--app", "shop:app", "tasks", "watch", task_id, "--json")
    assert ran.code == 0
    kinds = [event["kind"] for event in ran.lines]
    assert kinds == ["task.enqueued", "task.running", *["task.progress"] * 3, "task.completed"]
    assert "3 of 3  stepping" in cli.app("tasks", "watch", task_id).out


def test_watch_exits_1_if_the_task_fails_or_is_canceled(cli: Cli) -> None:
    failed, canceled = cli.enqueue("shop.fail", "no luck"), cli.enqueue("shop.add", "1", "--delay", "1h")
    cli.drain()
    ran = cli.app("tasks", "watch", failed)
    assert ran.code == 1
    assert "no luck (dead letter)" in ran.out
    cli.app("tasks", "cancel", canceled)
    assert cli.app("tasks", "watch", canceled).code == 1


def test_watch_gives_up_after_its_timeout(cli: Cli) -> None:
    ran = cli.app("tasks", "watch", cli.enqueue("shop.add", "1"), "--timeout", "100ms")
    assert ran.code == 1
    assert "has not ended" in ran.err


def test_ctrl_c_ends_a_command_with_130(cli: Cli) -> None:
    task_id = cli.enqueue("shop.add", "1")
    watching = cli.start("--app", "shop:app", "tasks", "watch", task_id)
    assert watching.process.stdout is not None
    assert b"enqueued" in watching.process.stdout.readline()
    watching.signal(signal.SIGINT)
    assert watching.ended() == 130
