"""`app.datasets`: what completed tasks have written, version by version (contract section 13). It is only read here:
a dataset is written by `ctx.output(…)` alone.
"""

from __future__ import annotations

import sys
from builtins import list as List  # noqa: N812  the desk has a method named list
from datetime import datetime
from typing import Any

from holdfast.client import Client
from holdfast.desks import Desk
from holdfast.model.output import DatasetInfo, DatasetVersion, Mode
from holdfast.outputs import read_rows
from holdfast.policy import refusals
from holdfast.policy.admission import checked_int, maybe_name

VERSION_HIGHEST = 2**63 - 1


class Dataset:
    """One version of a dataset. It never changes; it may be pruned once it is not the latest any more."""

    def __init__(self, client: Client, info: DatasetVersion) -> None:
        self._client = client
        self.info = info

    def __repr__(self) -> str:
        return f"<Dataset {self.name!r}, version {self.version}, {self.info.rows:,} rows>"

    @property
    def name(self) -> str:
        return self.info.dataset

    @property
    def uuid(self) -> str:
        return self.info.dataset_uuid

    @property
    def version(self) -> int:
        return self.info.version

    @property
    def mode(self) -> Mode:
        return self.info.mode

    @property
    def added(self) -> int:
        """How many of its rows came with this version."""
        return self.info.added

    @property
    def task_id(self) -> str:
        """Who wrote it; the task itself may be gone."""
        return self.info.task_id

    @property
    def created_at(self) -> datetime:
        return self.info.created_at

    def rows(self, *, after: str | None = None, limit: int | None = None) -> List[tuple[str, Any]]:
        """Pairs of key and value, by key: all of them, or so many after a key."""
        return self._client.plainly(lambda: self.arows(after=after, limit=limit), plain="rows")

    async def arows(self, *, after: str | None = None, limit: int | None = None) -> List[tuple[str, Any]]:
        most = sys.maxsize if limit is None else checked_int(limit, 1, sys.maxsize, what="limit")
        return await read_rows(self._client.store, self.name, self.version, after=after, most=most)


class DatasetsDesk(Desk):
    def list(self, limit: int = 100, after: str | None = None) -> List[DatasetInfo]:
        """By name, each with its latest version; `after` is the last name of the page before."""
        return self._plainly(lambda: self.alist(limit, after), "list")

    async def alist(self, limit: int = 100, after: str | None = None) -> List[DatasetInfo]:
        checked_int(limit, 1, 10_000, what="limit")
        return await self._client.store.datasets(limit=limit, after=maybe_name(after, what="after"))

    def versions(self, name: str, limit: int = 100, before: int | None = None) -> List[DatasetVersion]:
        """Newest first, those that are kept; `before` is the last number of the page before. DatasetNotFound."""
        return self._plainly(lambda: self.aversions(name, limit, before), "versions")

    async def aversions(self, name: str, limit: int = 100, before: int | None = None) -> List[DatasetVersion]:
        checked_int(limit, 1, 10_000, what="limit")
        if before is not None:
            checked_int(before, 1, VERSION_HIGHEST, what="before")
        found = await self._client.store.dataset_versions(name, limit=limit, before=before)
        if not found:
            await self.aget(name)
        return found

    def get(self, name: str, version: int | None = None) -> Dataset:
        """This version, or the latest; DatasetNotFound."""
        return self._plainly(lambda: self.aget(name, version), "get")

    async def aget(self, name: str, version: int | None = None) -> Dataset:
        if version is not None:
            checked_int(version, 1, VERSION_HIGHEST, what="version")
        info = await self._client.store.dataset_version(name, version)
        if info is None:
            raise refusals.dataset_not_found(name, version)
        return Dataset(self._client, info)
