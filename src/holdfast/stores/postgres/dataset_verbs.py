"""What a handle shows of datasets; they are written with completions (settle.py, joined.py)."""

from __future__ import annotations

from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.stores.postgres import datasets
from holdfast.stores.postgres.handle import Handle


class DatasetVerbs(Handle):
    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:
        return await self._read(lambda session: datasets.listed(session, limit, after))

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:
        return await self._read(lambda session: datasets.versions(session, dataset, limit, before))

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:
        return await self._read(lambda session: datasets.version(session, dataset, version))

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:
        return await self._read(lambda session: datasets.rows(session, dataset, version, after, limit))

    async def pinned(self, task_id: str) -> dict[str, int | None]:
        return await self._read(lambda session: datasets.pinned(session, task_id))
