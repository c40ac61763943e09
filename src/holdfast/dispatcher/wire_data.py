"""The forms of on_data.py: datasets, sinks, the outbox. What holds for all forms is said in wire.py."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw

from holdfast.dispatcher.wire import (
    BATCH_MOST,
    Answer,
    Call,
    Name,
)
from holdfast.model.outbox import Effect, OutboxRow, Sink
from holdfast.model.output import DatasetInfo, DatasetVersion


class DatasetsAnswer(Answer, kw_only=True):
    datasets: list[DatasetInfo]


class VersionsAnswer(Answer, kw_only=True):
    versions: list[DatasetVersion]


class RowOut(Answer, kw_only=True, gc=False):
    key: str
    value: Raw


class RowsAnswer(Answer, kw_only=True):
    rows: list[RowOut]


class SinkCall(Call, kw_only=True):
    name: Name
    url: Name
    effect: Effect
    kinds: list[Name] | None = None
    queues: list[Name] | None = None
    secret: Name | None = None
    private: bool = False


class SinksAnswer(Answer, kw_only=True):
    sinks: list[Sink]


class OutboxAnswer(Answer, kw_only=True):
    rows: list[OutboxRow]
    after: int


class RowsCall(Call, kw_only=True):
    ids: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=BATCH_MOST)]
