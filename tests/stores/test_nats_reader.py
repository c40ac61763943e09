"""Reads from the stream itself: what is too much for one answer of the server is asked for again, and complete."""

from __future__ import annotations

import pytest

from holdfast.model.outcome import Completed
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask
from holdfast.stores.nats import reader
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.wire import Message
from tests.stores.nats_support import Place, claimed, in_place, ledger_of, settled, submitted


def test_tasks_with_large_results_are_all_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(place: Place) -> None:
        monkeypatch.setattr(reader, "ANSWER_BYTES", 5000)
        store = place.open()
        made = await submitted(store, 20)
        await settled(store, await claimed(store, 20), Completed('"' + 1000 * "x" + '"'))
        assert len(await ledger_of(store).homes(made)) == 20
        assert [task.id for task in await place.open().page(TaskFilter())] == made[::-1]
        assert await place.open().repair() == []
        assert len(await store.events(None, after=0, limit=100)) == 60

    in_place(work)


def test_what_is_written_over_between_two_answers_is_in_one_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(place: Place) -> None:
        monkeypatch.setattr(reader, "ANSWER_BYTES", 2500)
        store = place.open()
        await store.submit([NewTask(id="first", name="t", payload="{}")])
        ledger = ledger_of(store)
        names = [ledger.subjects.step("first", str(number)) for number in range(6)]
        for name in names:
            await ledger.wire.write([Message(name, 1000 * b"x")])
        ask = ledger.reader._ask
        asked: list[dict[str, object]] = []

        async def overtaken(body: dict[str, object]) -> object:
            answer = await ask(body)
            if not asked:
                await ledger.wire.write([Message(names[0], b"new"), Message(names[5], b"new")])
            asked.append(body)
            return answer

        monkeypatch.setattr(ledger.reader, "_ask", overtaken)
        last: dict[str, Found] = await ledger.reader.last(names)
        assert len(asked) > 1
        assert set(last) == set(names)
        assert last[names[5]].body == b"new"

    in_place(work)
