"""Outputs in few words: given, written, read, pinned. For the cases about datasets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.model.outcome import Completed
from holdfast.model.output import DatasetVersion, Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention
from holdfast.model.task import NewTask
from holdfast.testing.conformance.checks import equal
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import EVERYTHING, Subject
from holdfast.testing.conformance.workflow_words import with_fields

ORDERS = "orders"
A_DAY = timedelta(days=1)
ONLY_VERSIONS = Retention(completed=None, canceled=None, failed=None, outputs=A_DAY)


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("outputs", *needs))


def given(values: Mapping[str, Any], mode: Mode, dataset: str) -> Output:
    texts = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
    return Output(dataset, mode, tuple(OutputRow(key, text) for key, text in texts.items()))


def appended(dataset: str = ORDERS, /, **values: Any) -> Output:
    return given(values, Mode.APPEND, dataset)


def replaced(dataset: str = ORDERS, /, **values: Any) -> Output:
    return given(values, Mode.REPLACE, dataset)


async def write(subject: Subject, *outputs: Output, **fields: Any) -> str:
    """A new task that completes with these; its id."""
    task_id = await subject.submit(**fields)
    await complete(subject, task_id, *outputs)
    return task_id


async def complete(subject: Subject, task_id: str, *outputs: Output) -> None:
    await subject.settle((await subject.claim(task_id)).lease, Completed(), outputs=outputs)


async def read(subject: Subject, version: int, dataset: str = ORDERS) -> dict[str, Any]:
    found = await subject.store.dataset_rows(dataset, version, after=None, limit=EVERYTHING)
    return {row.key: msgspec.json.decode(row.value) for row in found}


async def versions(subject: Subject, dataset: str = ORDERS) -> list[DatasetVersion]:
    """Oldest first."""
    return (await subject.store.dataset_versions(dataset, limit=EVERYTHING, before=None))[::-1]


async def numbers(subject: Subject, dataset: str = ORDERS) -> list[int]:
    return [one.version for one in await versions(subject, dataset)]


async def everything(subject: Subject) -> dict[tuple[str, int], tuple[DatasetVersion, dict[str, Any]]]:
    found = await subject.store.datasets(limit=EVERYTHING, after=None)
    names = [info.latest.dataset for info in found]
    return {
        (name, one.version): (one, await read(subject, one.version, name))
        for name in names
        for one in await versions(subject, name)
    }


@asynccontextmanager
async def nothing_written(subject: Subject) -> AsyncIterator[None]:
    before = await everything(subject)
    yield
    equal(await everything(subject), before, "no dataset, no version and no row changes")


def pinned_to(**pins: int | None) -> tuple[Pin, ...]:
    return tuple(Pin(dataset, version) for dataset, version in sorted(pins.items()))


def reading(tasks: dict[str, NewTask], *names: str) -> dict[str, NewTask]:
    """These read what their parents write."""
    return with_fields(tasks, names, inputs=pinned_to(orders=None))
