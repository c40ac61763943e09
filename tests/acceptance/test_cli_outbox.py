"""`holdfast sinks`, `holdfast outbox`, and workers that are woken from outside, by the command line."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest

from holdfast import Holdfast, webhooks
from tests import moto_server
from tests.acceptance.cli_driver import Cli
from tests.relay.receiver import Receiver
from tests.runtime.support import Crew, wait_until


def with_dead_rows(folder: Path, receiver: Receiver, number: int = 2) -> list[int]:
    """A store whose sink has refused so many events for good."""
    with Holdfast(f"sqlite:///{folder}/shop.db") as app:
        app.webhook(receiver.url("/410"), name="hook", secret="canary", private=True, kinds=["task.enqueued"])
        for _ in range(number):
            app.enqueue("somebody.elses")
        with Crew(app):
            wait_until(lambda: len(app.outbox.list(state="dead")) == number, "dead rows")
        return [row.id for row in app.outbox.list(state="dead")]


def test_sinks_are_listed_without_secrets_and_deleted(cli: Cli) -> None:
    with Receiver() as receiver:
        with_dead_rows(cli.folder, receiver)
        url = ("--url", "sqlite:///shop.db")
        shown = cli(*url, "sinks", "list")
        assert "hook" in shown.out
        assert "canary" not in shown.out + shown.err
        listed = cli(*url, "sinks", "list", "--json").json
        assert (listed["name"], listed["signed"], listed["dead"]) == ("hook", True, 2)
        assert cli(*url, "sinks", "delete", "hok", "--yes").code == 3
        assert "did you mean 'hook'" in cli(*url, "sinks", "delete", "hok", "--yes").err
        assert cli(*url, "sinks", "delete", "hook").code == 2, "nobody can be asked here"
        assert cli(*url, "sinks", "delete", "hook", "--yes", "--json").json == {"name": "hook", "deleted": True}
        assert cli(*url, "sinks", "list").out == ""


def test_dead_rows_are_listed_requeued_and_purged(cli: Cli) -> None:
    with Receiver() as receiver:
        first, second = with_dead_rows(cli.folder, receiver)
        url = ("--url", "sqlite:///shop.db")
        shown = cli(*url, "outbox", "list", "--state", "dead")
        assert shown.out.count("task.enqueued") == 2
        assert "answered 410" in shown.out
        assert "\x1b" not in shown.out, "what a receiver answered is not obeyed"
        rows = cli(*url, "outbox", "list", "--sink", "hook", "--json").lines
        assert [(row["id"], row["state"]) for row in rows] == [(first, "dead"), (second, "dead")]
        page = cli(*url, "outbox", "list", "--limit", "1")
        assert page.err.splitlines()[-1] == f"there may be more: --after {first}"
        assert [row["id"] for row in cli(*url, "outbox", "list", "--after", str(first), "--json").lines] == [second]
        assert cli(*url, "outbox", "requeue", str(first), "--json").json == {"requeued": 1}
        assert cli(*url, "outbox", "requeue", str(first)).code == 3
        assert cli(*url, "outbox", "purge", "--all", "--sink", "other", "--yes", "--json").json == {"purged": 0}
        assert cli(*url, "outbox", "purge", "--all", "--yes", "--json").json == {"purged": 1}
        assert [row["id"] for row in cli(*url, "outbox", "list", "--json").lines] == [first]


def test_a_webhook_is_declared_and_told_with_a_secret_that_was_made(cli: Cli) -> None:
    url = ("--url", "sqlite:///shop.db")
    with Receiver() as receiver:
        asked = ("sinks", "webhook", receiver.url("/hook?key=k"), "--private", "--kinds", "task.enqueued,task.failed")
        made = cli(*url, *asked, "--queues", "mail", "--new-secret", "--json").json
        assert (made["name"], made["signed"]) == (receiver.url("/hook"), True)
        with Holdfast(f"sqlite:///{cli.folder}/shop.db") as app:
            (sink,) = app.sinks.list()
            assert (sink.kinds, sink.queues) == (("task.enqueued", "task.failed"), ("mail",))
            app.enqueue("somebody.elses")
            handle = app.using(queue="mail").enqueue("somebody.elses")
            with Crew(app):
                wait_until(lambda: receiver.requests, "the webhook to be told")
        (request,) = receiver.requests
        told = webhooks.verify(request.body, request.headers, made["secret"])
        assert (told.event.kind, told.event.task_id) == ("task.enqueued", handle.id)
        assert made["secret"] not in cli(*url, "sinks", "list", "--json").out


def test_the_secret_of_a_webhook_comes_by_the_environment_or_the_standard_input_and_is_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = ("--url", "sqlite:///shop.db")
    asked = ("sinks", "webhook", "https://example.org/hook", "--name", "hook")
    nothing = cli(*url, *asked)
    assert nothing.code == 2
    assert "HOLDFAST_WEBHOOK_SECRET" in nothing.err
    assert cli(*url, *asked, "--unsigned", "--new-secret").code == 2
    assert cli(*url, "sinks", "webhook", "https://10.0.0.1/", "--unsigned").code == 2, "not private"
    assert cli(*url, "sinks", "list").out == "", "nothing was declared"

    def secrets() -> list[str | None]:
        async def read() -> list[str | None]:
            async with Holdfast(f"sqlite:///{cli.folder}/shop.db") as app:
                return [target.secret for target in await app.client.store.targets()]

        return asyncio.run(read())

    assert cli(*url, *asked, "--unsigned", "--json").json["signed"] is False
    assert secrets() == [None]
    shown = cli(*url, *asked, HOLDFAST_WEBHOOK_SECRET="canary one")
    assert shown.code == 0
    assert secrets() == ["canary one"]
    monkeypatch.setattr("sys.stdin", io.StringIO("canary two\nnot this\n"))
    also = cli(*url, *asked, "--secret-stdin", "--json")
    assert secrets() == ["canary two"]
    assert "canary" not in shown.out + shown.err + also.out + also.err
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert cli(*url, *asked, "--secret-stdin").code == 2
    assert secrets() == ["canary two"]


def test_a_wake_up_that_was_told_is_shown_as_told(cli: Cli) -> None:
    url = ("--url", "sqlite:///shop.db")
    queue = moto_server.Queue(moto_server.server())
    with Holdfast(f"sqlite:///{cli.folder}/shop.db", wakeup=queue.url) as app:
        app.enqueue("somebody.elses", 1)
        assert cli(*url, "outbox", "list").out.count("pending") == 1
        with Crew(app, queues=["another"]):
            wait_until(lambda: cli(*url, "outbox", "list", "--json").json["told"] == 1, "the wake-up to be told")
    shown = cli(*url, "outbox", "list").out
    assert "told" in shown
    assert "pending" not in shown
    queue.close()


def test_wrong_usage_is_said(cli: Cli) -> None:
    url = ("--url", "sqlite:///shop.db")
    assert cli(*url, "outbox", "requeue").code == 2
    assert cli(*url, "outbox", "requeue", "1", "--all").code == 2
    assert cli(*url, "outbox", "purge", "1", "--sink", "x", "--yes").code == 2
    assert cli(*url, "worker", "--app", "shop:app", "--wakeup", "redis://x").code == 2


def test_a_worker_takes_the_messages_of_the_queue_it_was_told_of(cli: Cli) -> None:
    """That it is the message which wakes it is shown in tests/relay: here SQLite does as well."""
    queue = moto_server.Queue(moto_server.server())
    worker = cli.start("--app", "shop:app", "worker", "--poll-interval", "1h", "--wakeup", queue.url)
    worker.wait_for("worker.started")
    with Holdfast(f"sqlite:///{cli.folder}/shop.db", wakeup=queue.url) as app:
        handle = app.enqueue("shop.add", 1, 2)
        wait_until(lambda: handle.task().status == "completed", "the task to be run")
        assert [sink.name for sink in app.sinks.list()] == [f"wakeup:{queue.url}"]
    wait_until(lambda: queue.counts() == (0, 0), "its message to be deleted")
    queue.close()
