"""The servers have no room left: what cannot be kept is refused in words, the rest goes on, nothing is lost."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import NewTask
from holdfast.model.transition import Change, Settled
from holdfast.stores.nats import stream
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests.faults.checks import all_tasks, check_whole
from tests.faults.nats_support import opened, place
from tests.jetstream_admin import Ask, asked, connected
from tests.jetstream_servers import fresh_prefix, fresh_single
from tests.stores.postgres_support import new_task, request

LIMIT = 1_500_000
LARGE = '"' + "x" * 20_000 + '"'
NO_LIMIT = -1


def limit(url: str, most: int) -> None:
    """As an operator does: the stream's max_bytes."""
    name = parsed(url, {}).stream

    async def work(ask: Ask) -> None:
        config = (await ask(f"STREAM.INFO.{name}"))["config"]
        await ask(f"STREAM.UPDATE.{name}", **(config | {"max_bytes": most}))

    asked(url, work)


async def fill(url: str, subject: str) -> None:
    """With what is nobody's, large at first, until not one small message more is taken."""
    async with connected(url) as client:
        for size in (50_000, 5_000, 500, 50, 1):
            while b'"error"' not in (await client.request(f"{subject}.{size}", b"x" * size, 10)).data:
                subject += "x"


async def submitted_until_refused(store: NatsStore) -> tuple[list[NewTask], list[NewTask], str]:
    """What was acknowledged, what was refused, and how."""
    made: list[NewTask] = []
    while True:
        tasks = [new_task(payload=LARGE) for _ in range(3)]
        try:
            await store.submit(tasks)
        except StoreUnavailable as error:
            return made, tasks, str(error)
        made += tasks


async def work_off(store: NatsStore) -> None:
    while claims := (await store.claim(request(limit=10))).claims:
        told = await store.settle([Settlement(claim.lease, Completed()) for claim in claims])
        assert all(isinstance(one, Settled) for one in told), told


def test_a_stream_that_is_nearly_full_takes_no_tasks_but_ends_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims, ends and deletes write too, and have the rest of the room; deleted tasks make room for others."""
    monkeypatch.setattr(stream, "LOOK_SECONDS", 0.0)

    async def use(url: str) -> None:
        async with opened(url) as store:
            await store.now()
            limit(url, LIMIT)
            await store.now()  # as anything that looks at the stream
            made, refused, why = await submitted_until_refused(store)
            assert "is full" in why
            assert "raise its max_bytes" in why
            assert [says[1] for says in await store.check() if says[0] == "room"] != [True]
            await work_off(store)
            assert sorted(task.id for task in await all_tasks(store)) == sorted(new.id for new in made)
            await store.amend(Change.DELETE, [new.id for new in made], actor="operator")
            await store.submit(refused)
            await work_off(store)
            await check_whole(store, [new.id for new in refused])

    with place() as url:
        asyncio.run(use(url))


def test_a_stream_that_is_full_to_the_brim_refuses_and_goes_on_once_there_is_room() -> None:
    async def use(url: str) -> None:
        options = parsed(url, {})
        async with opened(url) as store:
            tasks = [new_task() for _ in range(5)]
            await store.submit(tasks)
            (held, *_) = (await store.claim(request(limit=2))).claims
            limit(url, LIMIT)
            await fill(url, f"{options.prefix}.filler")
            before = await all_tasks(store)
            for verb in (
                lambda: store.submit([new_task()]),
                lambda: store.claim(request(limit=2)),
                lambda: store.settle([Settlement(held.lease, Completed())]),
                lambda: store.amend(Change.CANCEL, [tasks[-1].id], actor="operator"),
            ):
                with pytest.raises(StoreUnavailable, match=r"is full|maximum bytes exceeded .*raise"):
                    await verb()
            assert await all_tasks(store) == before, "nothing of it has happened"
            limit(url, NO_LIMIT)
            (told,) = await store.settle([Settlement(held.lease, Completed())])
            assert isinstance(told, Settled)
            await store.amend(Change.RELEASE, [task.id for task in before if task.status == "running"], actor="me")
            await work_off(store)
            await check_whole(store, [new.id for new in tasks])

    with place() as url:
        asyncio.run(use(url))


@pytest.mark.soak
def test_a_server_that_is_full_refuses_and_goes_on_once_there_is_room() -> None:
    """Its own limit is met in the midst of a step, and tears it (server 2.15): made again, the submit is whole."""

    async def use(url: str) -> None:
        filler = f"filler_{fresh_prefix()}"

        async def make(ask: Ask) -> None:
            await ask(f"STREAM.CREATE.{filler}", name=filler, subjects=[f"{filler}.>"], storage="file", num_replicas=1)

        async def remove(ask: Ask) -> None:
            await ask(f"STREAM.DELETE.{filler}")

        asked(url, make)
        async with connected(url) as client:
            for number in range(20):
                await client.request(f"{filler}.{number}", b"x" * 50_000, 10)
        async with opened(url, timeout=1.0) as store:
            made, refused, _ = await submitted_until_refused(store)
            with pytest.raises(StoreUnavailable, match=r"insufficient resources .*raise the stream's max_bytes"):
                await store.submit(refused)
            asked(url, remove)
            await store.submit(refused)
            await work_off(store)
            await check_whole(store, [new.id for new in (*made, *refused)])

    with fresh_single(max_file_store="2MB") as server:
        asyncio.run(use(server.url(fresh_prefix())))
