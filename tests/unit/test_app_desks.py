"""Looking and acting: `app.tasks`, `app.dlq`, `app.queues`, and settings from the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Exponential, Fixed, Holdfast
from holdfast.errors import InvalidTask, TaskCompleted, TaskNotClaimed, TaskNotFound
from holdfast.settings import Defaults, default_url


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    with Holdfast(url) as opened:
        yield opened


def dead_letters(app: Holdfast, number: int, *, queue: str = "default") -> None:
    @app.task(name=f"bad-{queue}", queue=queue, max_attempts=1)
    async def bad() -> None:
        raise ValueError("bad")

    app.enqueue_many([bad.s() for _ in range(number)])
    app.worker(queues=[queue]).run(until_idle=True)


def test_every_dead_letter_is_requeued_in_bounded_batches(app: Holdfast) -> None:
    dead_letters(app, 1201)
    dead_letters(app, 3, queue="mail")
    heard: list[int] = []
    assert app.dlq.requeue_all(queue="default", progress=heard.append) == 1201
    assert heard == [500, 1000, 1201]
    assert app.tasks.count() | {"running": 0} == app.tasks.count()
    assert (app.tasks.count("default")["queued"], app.tasks.count("mail")["failed"]) == (1201, 3)
    assert {task.failures for task in app.tasks.list(status="queued", limit=2000)} == {0}
    assert app.dlq.requeue_all(name="bad-mail") == 3
    assert app.dlq.requeue_all() == 0


def test_every_dead_letter_is_purged_in_bounded_batches(app: Holdfast) -> None:
    dead_letters(app, 1201)
    assert app.dlq.purge(older_than=timedelta(hours=1)) == 0
    assert app.dlq.purge(older_than=datetime(2020, 1, 1, tzinfo=UTC)) == 0
    assert app.dlq.purge() == 1201
    assert app.tasks.list() == []


def test_one_dead_letter_is_requeued_with_a_fresh_budget(app: Holdfast) -> None:
    dead_letters(app, 1)
    (letter,) = app.dlq.list()
    app.dlq.requeue(letter.id)
    task = app.tasks.get(letter.id)
    assert (task.status, task.failures, task.attempt) == ("queued", 0, 1)
    assert app.dlq.list() == []


def test_tasks_are_listed_by_what_is_asked_page_by_page(app: Holdfast) -> None:
    handles = app.enqueue_many([app.using(queue="a", run_id="r").s("x") for _ in range(5)] + [app.s("y")])
    assert [task.name for task in app.tasks.list(name="y")] == ["y"]
    assert len(app.tasks.list(queue="a", run_id="r", status="queued")) == 5
    first = app.tasks.list(limit=4)
    rest = app.tasks.list(limit=4, after=first[-1].id)
    assert [task.id for task in first + rest] == [handle.id for handle in reversed(handles)]
    with pytest.raises(InvalidTask, match="no status 'lost'"):
        app.tasks.list(status="lost")
    with pytest.raises(InvalidTask):
        app.tasks.list(limit=0)


def test_acts_that_the_state_refuses_are_raised(app: Holdfast) -> None:
    @app.task(name="good")
    async def good() -> None: ...

    handle = good.enqueue()
    with pytest.raises(TaskNotClaimed):
        app.tasks.release(handle.id)
    with pytest.raises(InvalidTask):
        app.tasks.delete(handle.id)
    app.worker().run(until_idle=True)
    with pytest.raises(TaskCompleted):
        app.tasks.cancel(handle.id)
    with pytest.raises(TaskCompleted):
        app.tasks.retry(handle.id)
    app.tasks.delete(handle.id)
    for act in (app.tasks.get, app.tasks.cancel, app.tasks.retry, app.tasks.delete, app.tasks.release):
        with pytest.raises(TaskNotFound):
            act(handle.id)


def test_the_events_of_a_task_can_be_read(app: Holdfast) -> None:
    @app.task(name="good")
    async def good() -> None: ...

    handle = good.enqueue()
    app.worker(worker_id="w").run(until_idle=True)
    events = app.tasks.events(handle.id)
    assert [event.kind for event in events] == ["task.enqueued", "task.running", "task.completed"]
    assert [event.actor for event in events] == ["client", "w", "w"]
    assert events == handle.events()
    assert all(event.ts.tzinfo is not None and event.payload["task_id"] == handle.id for event in events)
    with pytest.raises(TaskNotFound):
        app.tasks.events("nobody")


def test_limits_are_set_changed_and_cleared_at_the_desk(app: Holdfast) -> None:
    assert app.queues.limit("mail", max_running=10, rate="100/s", burst=5).max_running == 10
    limits = app.queues.limit("mail", rate=None, max_running_per_key=1)
    assert (limits.max_running, limits.rate, limits.burst, limits.max_running_per_key) == (10, None, 5, 1)
    assert {queue.name: queue.limits for queue in app.queues.list()} == {"mail": limits}
    with pytest.raises(InvalidTask, match="max_running_per_key belongs to a queue"):
        app.queues.limit("*", max_running_per_key=1)


def test_queues_are_listed_with_their_counts(app: Holdfast) -> None:
    app.using(queue="mail").enqueue("x")
    app.queues.pause("mail")
    app.queues.pause("new")
    shown = {queue.name: (queue.paused, queue.counts.get("queued", 0)) for queue in app.queues.list()}
    assert shown == {"mail": (True, 1), "new": (True, 0)}
    app.queues.resume("mail")
    assert [queue.paused for queue in app.queues.list()] == [False, True]


def test_the_whole_store_is_not_a_queue_that_can_be_paused(app: Holdfast) -> None:
    for act in (app.queues.pause, app.queues.resume):
        with pytest.raises(InvalidTask, match="one by one"):
            act("*")
    assert app.queues.list() == []


def test_every_look_and_act_has_its_async_twin(app: Holdfast) -> None:
    dead_letters(app, 2)

    async def main() -> None:
        first, second = await app.dlq.alist()
        await app.dlq.arequeue(first.id)
        assert await app.dlq.arequeue_all() == 1
        await app.tasks.acancel(first.id)
        await app.tasks.aretry(first.id)
        await app.tasks.acancel(first.id)
        await app.tasks.adelete(first.id)
        assert (await app.tasks.aget(second.id)).status == "queued"
        assert (await app.tasks.aevents(second.id))[0].kind == "task.enqueued"
        with pytest.raises(TaskNotClaimed):
            await app.tasks.arelease(second.id)
        assert await app.dlq.apurge() == 0
        await app.queues.apause("default")
        await app.queues.aresume("default")
        assert len(await app.queues.alist()) == 1
        assert await app.workers.alist() == []
        await app.aclose()

    asyncio.run(main())


# Settings


def test_the_environment_sets_the_defaults() -> None:
    defaults = Defaults.from_environment(
        {"TASK_LOCK_MS": "1500", "TASK_MAX_ATTEMPTS": "2", "TASK_RETRY_BASE_MS": "10", "TASK_RETRY_CAP_MS": "20"}
    )
    assert defaults == Defaults(max_attempts=2, lease_seconds=1.5, backoff=Exponential(0.01, 0.02))
    assert Defaults.from_environment({}) == Defaults(max_attempts=5, lease_seconds=60, backoff=Exponential(1.5, 60))


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "1e3", "99999999999999"])
def test_a_setting_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidTask, match="TASK_MAX_ATTEMPTS"):
        Defaults.from_environment({"TASK_MAX_ATTEMPTS": text})


def test_code_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_MAX_ATTEMPTS", "2")
    monkeypatch.setenv("TASK_LOCK_MS", "700")
    monkeypatch.setenv("HOLDFAST_URL", "memory://from-environment")
    with Holdfast() as app:
        assert app.url == "memory://from-environment"

        @app.task(name="own", max_attempts=7, backoff=Fixed(1))
        async def own() -> None: ...

        assert own.enqueue().task().max_attempts == 7
        assert app.enqueue("x").task().max_attempts == 2
        assert app.worker().settings.lease_seconds == 0.7
        assert app.worker(lease=3).settings.lease_seconds == 3


def test_without_a_url_it_is_a_file_here(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That is told when the store is first opened: until then another may be chosen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    caplog.set_level("INFO", "holdfast")
    with Holdfast() as app:
        assert app.url == "sqlite:///holdfast.db"
        assert not caplog.text
        app.enqueue("x")
    assert str(tmp_path / "holdfast.db") in caplog.text
    assert default_url({"HOLDFAST_URL": "memory://x"})[0] == "memory://x"


@pytest.mark.parametrize("url", ["tasks.db", "", "ftp://host/x", "sqlite", "memory"])
def test_what_is_no_store_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidTask):
        Holdfast(url)


@pytest.mark.parametrize("url", ["memory://user:secret@name", "postgresql://user:secret@host/db?password=secret"])
def test_a_password_is_not_shown(url: str) -> None:
    with Holdfast(url) as app:
        assert "secret" not in repr(app)


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"lease": 0}, {"poll_interval": 0}, {"grace": -1}, {"worker_id": ""}, {"queues": [""]}],
)
def test_worker_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with Holdfast("memory://") as app, pytest.raises(InvalidTask):
        app.worker(**options)  # type: ignore[arg-type]
