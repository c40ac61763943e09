"""What an attempt writes into datasets and reads of them (contract section 13).

What is written is only gathered here: it goes out with the attempt's completion, or not at all. What is read are the
versions that the task has pinned, page by page; an attempt looks up once which they are. The rules are in
policy/outputs.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

import msgspec

from holdfast.errors import DatasetNotFound, InvalidTask
from holdfast.model.claim import Claim, Lease
from holdfast.model.output import Mode, Output, OutputRow
from holdfast.policy.admission import checked_name
from holdfast.policy.outputs import check_mode, check_size, checked_mode, checked_row, merged, size_of
from holdfast.portal import in_event_loop
from holdfast.stores.protocol import DatasetStore

Rows: TypeAlias = Iterable[tuple[str, Any]] | Mapping[str, Any]
"""As they are given: pairs of key and value."""

PAGE = 500


def output_of(dataset: str, rows: Rows, mode: str) -> Output:
    """What was given for one dataset, checked and encoded."""
    checked_name(dataset, what="the dataset")
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return Output(dataset, checked_mode(mode), tuple(_row(dataset, pair) for pair in pairs))


def _row(dataset: str, pair: Any) -> OutputRow:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidTask(f"a row for dataset {dataset!r} is {str(pair)[:80]!r}; give pairs of a key and a value")
    return checked_row(*pair)


def shown(rows: Iterable[OutputRow]) -> list[tuple[str, Any]]:
    """Rows as people get them."""
    return [(row.key, msgspec.json.decode(row.value)) for row in rows]


async def read_rows(
    store: DatasetStore, dataset: str, version: int, *, after: str | None = None, most: int = sys.maxsize
) -> list[tuple[str, Any]]:
    """So many rows of a version after a key, read page by page; DatasetNotFound."""
    rows: list[tuple[str, Any]] = []
    while len(rows) < most:
        wanted = min(PAGE, most - len(rows))
        page = await store.dataset_rows(dataset, version, after=after, limit=wanted)
        rows += shown(page)
        if len(page) < wanted:
            break
        after = page[-1].key
    return rows


def pinned_version(pins: Mapping[str, int | None], dataset: str, task: str) -> int:
    """Which version the task, in words, reads of this dataset; or why none."""
    if dataset not in pins:
        raise InvalidTask(f"{task} has no input {dataset!r}; submit it with inputs={{{dataset!r}: VERSION}}")
    version = pins[dataset]
    if version is None:
        raise DatasetNotFound(f"no parent of {task} has written dataset {dataset!r}")
    return version


class Written:
    """What one attempt has written so far."""

    def __init__(self) -> None:
        self._given: list[Output] = []
        self._modes: dict[str, Mode] = {}
        self._rows = self._size = 0

    def add(self, output: Output) -> None:
        """Refused at once where the whole could not be committed."""
        check_mode(output, self._modes.get(output.dataset, output.mode))
        rows, size = self._rows + len(output.rows), self._size + size_of(output)
        check_size(rows, size)
        self._given.append(output)
        self._modes[output.dataset] = output.mode
        self._rows, self._size = rows, size

    def outputs(self) -> tuple[Output, ...]:
        return merged(self._given) if self._given else ()


class DatasetReader(Protocol):
    """How a handler's reads reach the store. The plain forms are for plain code only."""

    def pinned(self, lease: Lease) -> dict[str, int | None]: ...

    async def apinned(self, lease: Lease) -> dict[str, int | None]: ...

    def dataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]:
        """PAGE of them, or the last ones."""

    async def adataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]: ...


class PinnedInputs:
    """Of one attempt."""

    def __init__(self, claim: Claim, reader: DatasetReader) -> None:
        self._claim = claim
        self._reader = reader
        self._pins: dict[str, int | None] | None = None
        self._reading = asyncio.Lock()

    def rows(self, dataset: str) -> list[tuple[str, Any]]:
        if in_event_loop():
            raise RuntimeError("ctx.input() would block the event loop; use `await ctx.ainput(…)` here")
        if self._pins is None:
            self._pins = self._reader.pinned(self._claim.lease)
        version, rows = self._version(dataset, self._pins), list[tuple[str, Any]]()
        while True:
            page = self._reader.dataset_rows(self._claim.lease, dataset, version, rows[-1][0] if rows else None)
            rows += shown(page)
            if len(page) < PAGE:
                return rows

    async def arows(self, dataset: str) -> list[tuple[str, Any]]:
        async with self._reading:
            if self._pins is None:
                self._pins = await self._reader.apinned(self._claim.lease)
        version, rows = self._version(dataset, self._pins), list[tuple[str, Any]]()
        while True:
            page = await self._reader.adataset_rows(self._claim.lease, dataset, version, rows[-1][0] if rows else None)
            rows += shown(page)
            if len(page) < PAGE:
                return rows
            await asyncio.sleep(0)  # a store in memory answers without ever giving way

    def _version(self, dataset: str, pins: Mapping[str, int | None]) -> int:
        return pinned_version(pins, dataset, f"task {self._claim.task_id} ({self._claim.name})")
