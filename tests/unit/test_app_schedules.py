"""`@app.schedule` and `app.schedules`, as people use them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, current_task
from holdfast.declared import DeclaredTask
from holdfast.errors import InvalidTask, ScheduleNotFound
from holdfast.model.schedule import Schedule


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    with Holdfast(url) as opened:
        yield opened


def names(app: Holdfast) -> list[str]:
    return [schedule.name for schedule in app.schedules.list()]


# Declaring


def test_a_scheduled_task_is_still_the_task() -> None:
    app = Holdfast("memory://")

    @app.schedule("0 3 * * *", timezone="Europe/Zurich", missed="all", missed_most=5, jitter=timedelta(seconds=9))
    @app.task(name="nightly", queue="night")
    def nightly(days: int = 1) -> int:
        return days

    assert isinstance(nightly, DeclaredTask)
    assert nightly(3) == 3
    (new,) = app.registry.schedules
    assert (new.name, new.task.name, new.task.queue, new.declared) == ("nightly", "nightly", "night", True)
    timing = new.timing
    assert (timing.cron, timing.timezone, timing.every, timing.jitter) == ("0 3 * * *", "Europe/Zurich", None, 9.0)
    assert (timing.missed, timing.missed_most) == ("all", 5)


def test_one_task_can_have_several_schedules_each_with_its_arguments() -> None:
    app = Holdfast("memory://")

    @app.schedule(every=timedelta(minutes=5), name="quick", args=[1])
    @app.schedule("@weekly", kwargs={"days": 7})
    @app.task(name="report")
    def report(days: int) -> None: ...

    assert {new.name: new.task.payload for new in app.registry.schedules} == {
        "report": '{"args":[],"kwargs":{"days":7}}',
        "quick": '{"args":[1],"kwargs":{}}',
    }


def test_two_schedules_of_one_name_are_refused_unless_they_are_the_same() -> None:
    app = Holdfast("memory://")
    task = app.task(name="report")(lambda: None)
    app.schedule("@daily")(task)
    app.schedule("@daily")(task)
    with pytest.raises(InvalidTask, match="two schedules are declared as 'report'"):
        app.schedule("@weekly")(task)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "0 25 * * *"}, "Bad hour"),
        ({"cron": "@daily", "timezone": "Europe/Zurick"}, "did you mean 'Europe/Zurich'"),
        ({"every": 0.5}, "at least 1 second"),
        ({"every": "5m"}, "give seconds or a timedelta"),
        ({"cron": "@daily", "missed": "never"}, "'skip', 'once' or 'all'"),
        ({}, "one of them"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_declared(given: dict[str, Any], words: str) -> None:
    app = Holdfast("memory://")
    with pytest.raises(InvalidTask, match=words):
        app.schedule(**given)
    with pytest.raises(InvalidTask, match=words):
        app.schedules.put("x", app.s("any"), **given)


def test_arguments_that_the_task_does_not_take_are_refused_where_they_are_declared() -> None:
    app = Holdfast("memory://")
    task = app.task(name="report")(lambda days: days)
    with pytest.raises(InvalidTask, match="takes"):
        app.schedule("@daily")(task)


def test_what_is_no_task_cannot_be_scheduled() -> None:
    app = Holdfast("memory://")
    with pytest.raises(InvalidTask, match="stands above @app"):
        app.schedule("@daily")(lambda: None)  # type: ignore[type-var]


def test_a_worker_makes_its_schedules_known(app: Holdfast) -> None:
    app.schedule("@daily")(app.task(name="report")(lambda: None))
    assert names(app) == []
    app.worker().run(until_idle=True)
    (schedule,) = app.schedules.list()
    assert schedule.declared_at is not None
    assert app.tasks.list() == []


# Looking and acting


def test_a_schedule_can_be_put_there_at_run_time_and_changed(app: Holdfast) -> None:
    made = app.schedules.put(
        "tenant-7", app.using(queue="reports").s("report", 7), "0 6 * * MON", timezone="Asia/Tokyo"
    )
    assert made == app.schedules.get("tenant-7")
    assert (made.task.name, made.task.queue, made.task.payload) == ("report", "reports", '{"args":[7],"kwargs":{}}')
    assert made.declared_at is None
    again = app.schedules.put("tenant-7", app.s("report", 8), every=60)
    assert (again.timing.every, again.created_at) == (60.0, made.created_at)
    assert names(app) == ["tenant-7"]


def test_what_is_no_call_is_no_schedule(app: Holdfast) -> None:
    with pytest.raises(TypeError, match="takes a call"):
        app.schedules.put("x", "report", every=60)  # type: ignore[arg-type]
    with pytest.raises(InvalidTask, match="leave that out"):
        app.schedules.put("x", app.using(delay=5).s("report"), every=60)


def test_run_now_gives_a_handle_and_leaves_the_plan_alone(app: Holdfast) -> None:
    @app.task(name="report")
    def report(days: int) -> dict[str, Any]:
        return {"days": days, "meta": current_task().meta}

    made = app.schedules.put("weekly", report.s(7), "@weekly")
    app.schedules.pause("weekly")
    first, second = app.schedules.run("weekly"), app.schedules.run("weekly")
    assert first.id != second.id
    app.worker().run(until_idle=True)
    result = first.result(timeout=10)
    assert result["days"] == 7
    assert result["meta"]["schedule"]["name"] == "weekly"
    assert app.schedules.get("weekly").last_fired_at == made.last_fired_at


def test_pause_resume_and_delete(app: Holdfast) -> None:
    app.schedules.put("a", app.s("report"), "@weekly")
    app.schedules.pause("a")
    assert app.schedules.get("a").paused
    app.schedules.resume("a")
    assert not app.schedules.get("a").paused
    app.schedules.delete("a")
    assert names(app) == []


@pytest.mark.parametrize("act", ["get", "run", "pause", "resume", "delete"])
@pytest.mark.parametrize("name", ["nobody", "a\x00b", "\ud800"])
def test_an_unknown_schedule_is_not_found(app: Holdfast, act: str, name: str) -> None:
    with pytest.raises(ScheduleNotFound):
        getattr(app.schedules, act)(name)


def test_every_call_has_a_twin_for_async_code(app: Holdfast) -> None:
    async def use() -> None:
        made: Schedule = await app.schedules.aput("a", app.s("report"), every=timedelta(minutes=5))
        assert await app.schedules.alist() == [made]
        assert await app.schedules.aget("a") == made
        handle = await app.schedules.arun("a")
        assert (await handle.atask()).name == "report"
        await app.schedules.apause("a")
        await app.schedules.aresume("a")
        await app.schedules.adelete("a")
        assert await app.schedules.alist() == []
        with pytest.raises(RuntimeError, match="alist"):
            app.schedules.list()
        await app.aclose()

    asyncio.run(use())


# In tests of the people who use it


def test_schedules_fire_when_the_clock_of_a_test_moves() -> None:
    app = Holdfast("memory://")
    ran: list[str] = []

    @app.schedule("0 3 * * *", timezone="Europe/Zurich", missed="all")
    @app.task(name="nightly")
    def nightly() -> None:
        ran.append(current_task().meta["schedule"]["at"])

    with app.testing() as t:
        t.drain()
        assert ran == []
        t.advance(hours=2)
        t.drain()
        assert ran == ["2030-01-01T02:00:00Z"]
        t.advance(days=2)
        assert t.drain() == 2
    assert sorted(ran) == ["2030-01-01T02:00:00Z", "2030-01-02T02:00:00Z", "2030-01-03T02:00:00Z"]  # two ran at once


def test_schedules_fire_in_an_async_test_too_and_by_the_policy() -> None:
    app = Holdfast("memory://")
    task = app.task(name="often")(lambda: None)
    app.schedule(every=60)(task)

    async def use() -> None:
        async with app.testing() as t:
            t.advance(minutes=10)
            assert await t.adrain() == 1
            (done,) = await t.atasks()
            assert done.run_at == datetime(2030, 1, 1, 0, 10, tzinfo=UTC)

    asyncio.run(use())
