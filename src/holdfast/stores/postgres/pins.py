"""What tasks read: versions of datasets, kept beside the tasks of a submit (contract C13.3)."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from holdfast.errors import DatasetNotFound
from holdfast.model.output import Pin
from holdfast.model.task import NewTask
from holdfast.policy import refusals
from holdfast.policy.outputs import checked_pins, shown_pins
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import json_text

Lacking = asyncpg.ForeignKeyViolationError
"""A version that is to be pinned is not there. Where a prune is at it, the insert waits until that is over."""
HIGHEST = 2**63 - 1


def check(tasks: Sequence[NewTask]) -> None:
    """Numbers that no version can have would not even reach the server."""
    for new in tasks:
        for pin in new.inputs:
            if pin.version is not None and pin.version > HIGHEST:
                raise refusals.dataset_not_found(pin.dataset, pin.version)


def text_of(new: NewTask) -> str | None:
    """The column `inputs`."""
    return json_text(shown_pins(new.inputs)) if new.inputs else None


def of_text(text: str | None) -> tuple[Pin, ...]:
    return () if text is None else checked_pins(msgspec.json.decode(text))


async def insert(session: Session, tasks: Sequence[NewTask]) -> None:
    """In the transaction that inserts the tasks; raises Lacking."""
    rows = [(new.id, pin.dataset, pin.version) for new in tasks for pin in new.inputs]
    if rows:
        await session.rows("pins", *map(list, zip(*rows, strict=True)))


async def refusal(session: Session, tasks: Sequence[NewTask]) -> DatasetNotFound:
    """After Lacking, with everything undone."""
    pins = [(pin.dataset, pin.version) for new in tasks for pin in new.inputs if pin.version is not None]
    row = await session.row("lacking", *map(list, zip(*pins, strict=True)))
    if row is None:
        raise asyncpg.SerializationError("the version that was lacking is there now")
    return refusals.dataset_not_found(row["dataset"], row["version"])
