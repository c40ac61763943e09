"""What a SQLite handle shows of datasets: each is one call on the engine (see datasets.py)."""

from __future__ import annotations

from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.stores.sqlite import datasets
from holdfast.stores.sqlite.handle import Handle


class DatasetVerbs(Handle):
    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:
        return await self._engine.read(lambda conn: datasets.listed(conn, limit, after))

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:
        return await self._engine.read(lambda conn: datasets.versions(conn, dataset, limit, before))

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:
        return await self._engine.read(lambda conn: datasets.version(conn, dataset, version))

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:
        return await self._engine.read(lambda conn: datasets.rows(conn, dataset, version, after, limit))

    async def pinned(self, task_id: str) -> dict[str, int | None]:
        return await self._engine.read(lambda conn: datasets.pinned(conn, task_id))
