"""What the memory store shows of its datasets."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice

from holdfast.clock import from_micros
from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.stores.memory.datasets import Dataset
from holdfast.stores.memory.handle import Handle


class DatasetVerbs(Handle):
    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:
        with self._state.lock:
            self._now()
            names = sorted(self._state.datasets.by_name)
            first = 0 if after is None else bisect_right(names, after)
            return [_info(self._state.datasets.by_name[name]) for name in names[first : first + limit]]

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:
        with self._state.lock:
            self._now()
            known = self._state.datasets.by_name.get(dataset)
            numbers = [] if known is None else sorted(known.versions, reverse=True)
            wanted = (number for number in numbers if before is None or number < before)
            return [] if known is None else [known.versions[number] for number in islice(wanted, limit)]

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:
        with self._state.lock:
            self._now()
            known = self._state.datasets.by_name.get(dataset)
            return None if known is None else known.versions.get(known.last if version is None else version)

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:
        with self._state.lock:
            self._now()
            rows = self._state.datasets.version(dataset, version).read(version)
            return list(islice((row for row in rows if after is None or row.key > after), limit))

    async def pinned(self, task_id: str) -> dict[str, int | None]:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            return {} if record is None else self._state.datasets.pinned(record.new)


def _info(known: Dataset) -> DatasetInfo:
    return DatasetInfo(
        latest=known.versions[known.last], versions=len(known.versions), created_at=from_micros(known.created_at)
    )
