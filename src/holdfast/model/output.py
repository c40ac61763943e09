"""What tasks write that others read: datasets with immutable versions (contract section 13)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class Mode(StrEnum):
    REPLACE = "replace"
    """The new version is exactly these rows."""
    APPEND = "append"
    """The new version is the one before and these rows; of a key that it has already, the first value is kept."""


class OutputRow(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: str
    """JSON."""


class Output(msgspec.Struct, frozen=True):
    """What a completion writes into one dataset. Keys are unique within it (see policy/outputs.py)."""

    dataset: str
    mode: Mode
    rows: tuple[OutputRow, ...]


class Pin(msgspec.Struct, frozen=True):
    """An input of a task: this version of a dataset, or (None) what one of its parents writes."""

    dataset: str
    version: int | None


class DatasetVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version, as people read it."""

    dataset: str
    dataset_uuid: str
    version: int
    mode: Mode
    rows: int
    """How many the version has in all."""
    added: int
    """How many of them came with it."""
    task_id: str
    """Who wrote it; the task itself may be gone."""
    created_at: datetime


class DatasetInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset, as people read it: its latest version, and how many are kept."""

    latest: DatasetVersion
    versions: int
    created_at: datetime
