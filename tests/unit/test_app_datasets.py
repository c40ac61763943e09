"""Datasets as programs see them: `app.datasets`, TaskManager, and within `app.testing()`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Context, Holdfast, TaskManager
from holdfast.errors import DatasetNotFound, InvalidTask, LeaseLost
from holdfast.model.output import Mode
from holdfast.outputs import PAGE

app = Holdfast("memory://")


@app.task(name="fill", takes_context=True)
def fill(ctx: Context, dataset: str, values: dict[str, Any], mode: Any) -> None:
    ctx.output(dataset, values, mode=mode)


@app.task(name="total", takes_context=True)
async def total(ctx: Context) -> int:
    return sum(value for _, value in await ctx.ainput("orders"))


@pytest.fixture
def shop() -> Iterator[Holdfast]:
    with app.testing():
        yield app


def written(shop: Holdfast, dataset: str = "orders", mode: str = "append", /, **values: Any) -> None:
    fill.enqueue(dataset, values, mode)
    shop.worker(poll_interval=0.01).run(until_idle=True)


def test_a_test_can_write_and_read_in_virtual_time() -> None:
    with app.testing() as t:
        fill.enqueue("orders", {"a": 1, "b": 2}, "append")
        t.drain()
        handle = total.using(inputs={"orders": 1}, delay=3600).enqueue()
        fill.enqueue("orders", {"a": 100}, "replace")
        t.drain()
        t.advance(hours=1)
        t.drain()
        assert handle.result(5) == 3
        assert app.datasets.get("orders").rows() == [("a", 100)]
    with app.testing():
        assert app.datasets.list() == [], "each block has a store of its own"


def test_a_version_shows_what_it_is_and_gives_its_rows(shop: Holdfast) -> None:
    written(shop, b=[1], a=None)
    written(shop, c=3)
    first, latest = shop.datasets.get("orders", version=1), shop.datasets.get("orders")
    assert (first.name, first.version, first.mode, first.added) == ("orders", 1, Mode.APPEND, 2)
    assert (latest.version, latest.info.rows, latest.added) == (2, 3, 1)
    assert first.uuid == latest.uuid
    assert first.created_at <= latest.created_at
    assert shop.tasks.get(latest.task_id).name == "fill"
    assert first.rows() == [("a", None), ("b", [1])]
    assert latest.rows(after="a", limit=1) == [("b", [1])]
    assert latest.rows(limit=2) == [("a", None), ("b", [1])]
    assert repr(latest) == "<Dataset 'orders', version 2, 3 rows>"


def test_many_rows_are_read_page_by_page(shop: Holdfast) -> None:
    many = {f"k{number:05}": number for number in range(3 * PAGE)}
    written(shop, **many)
    dataset = shop.datasets.get("orders")
    assert dict(dataset.rows()) == many
    for limit in (PAGE - 1, PAGE, PAGE + 1, 3 * PAGE, 4 * PAGE):
        assert dataset.rows(limit=limit) == list(many.items())[:limit]


def test_datasets_and_versions_are_listed_page_by_page(shop: Holdfast) -> None:
    for name in "cab":
        written(shop, name, k=1)
    for _ in range(3):
        written(shop, "b", "replace", k=2)
    assert [info.latest.dataset for info in shop.datasets.list()] == ["a", "b", "c"]
    assert [info.latest.dataset for info in shop.datasets.list(limit=1, after="a")] == ["b"]
    assert [one.version for one in shop.datasets.versions("b")] == [4, 3, 2, 1]
    assert [one.version for one in shop.datasets.versions("b", limit=2, before=4)] == [3, 2]
    assert shop.datasets.versions("b", before=1) == []


def test_what_is_not_there_is_said(shop: Holdfast) -> None:
    written(shop, a=1)
    for name, version in (("nothing", None), ("orders", 2), ("nothing", 1)):
        with pytest.raises(DatasetNotFound, match=name):
            shop.datasets.get(name, version)
    with pytest.raises(DatasetNotFound):
        shop.datasets.versions("nothing")
    for wrong in (0, -1, "1", True, 2**63):
        with pytest.raises(InvalidTask):
            shop.datasets.get("orders", wrong)  # type: ignore[arg-type]
    for limit in (0, -1, 10_001):
        with pytest.raises(InvalidTask):
            shop.datasets.list(limit=limit)
    with pytest.raises(InvalidTask):
        shop.datasets.get("orders").rows(limit=0)


def test_every_call_has_its_twin(shop: Holdfast) -> None:
    written(shop, a=1)

    async def read() -> None:
        dataset = await shop.datasets.aget("orders")
        assert await dataset.arows() == [("a", 1)]
        assert [info.latest.version for info in await shop.datasets.alist()] == [1]
        assert [one.version for one in await shop.datasets.aversions("orders")] == [1]
        with pytest.raises(RuntimeError, match="arows"):
            dataset.rows()

    asyncio.run(read())


def test_a_manager_writes_and_reads() -> None:
    async def drive() -> None:
        async with await TaskManager.open("memory://") as manager:
            first = await manager.submit({"no": 1})
            await manager.claim(first, "w")
            await manager.complete(first, worker_id="w", outputs={"orders": [("a", 1), ("b", 2)], "other": {"k": None}})
            second = await manager.submit({"no": 2}, inputs={"orders": 1})
            await manager.claim(second, "w")
            assert await manager.input(second, "orders") == [("a", 1), ("b", 2)]
            with pytest.raises(InvalidTask, match="no input 'other'"):
                await manager.input(second, "other")
            await manager.complete(second, worker_id="w", outputs={"orders": {"c": 3}}, mode="replace")
            third = await manager.submit({"no": 3}, inputs={"orders": 2})
            assert await manager.input(third, "orders") == [("c", 3)]
            with pytest.raises(DatasetNotFound):
                await manager.submit({"no": 4}, inputs={"orders": 3})

    asyncio.run(drive())


def test_a_manager_that_lost_its_claim_writes_nothing() -> None:
    async def drive() -> None:
        async with await TaskManager.open("memory://") as manager:
            task_id = await manager.submit({"no": 1})
            await manager.claim(task_id, "w")
            stale = manager._claims[task_id]
            await manager.retry(task_id)
            await manager.claim(task_id, "w")
            manager._claims[task_id] = stale
            with pytest.raises(LeaseLost):
                await manager.complete(task_id, worker_id="w", outputs={"orders": {"a": 1}})
            with pytest.raises(DatasetNotFound):
                await manager.submit({"no": 2}, inputs={"orders": 1})

    asyncio.run(drive())
