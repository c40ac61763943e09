"""What the tests of the PostgreSQL store share: handles on schemas of their own, tasks, somebody else's connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.task import NewTask
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import postgres_server

NEVER_SECONDS = 600.0
"""As an interval: longer than any test."""


def handle(schema: str, clock: Clock = SYSTEM_CLOCK, **options: Any) -> PostgresStore:
    return PostgresStore(parsed(postgres_server.server().url, {"schema": schema, **options}), clock)


@asynccontextmanager
async def opened(
    schema: str | None = None, clock: Clock = SYSTEM_CLOCK, **options: Any
) -> AsyncIterator[PostgresStore]:
    store = handle(schema or postgres_server.fresh_schema(), clock, **options)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def somebody_else(store: PostgresStore) -> AsyncIterator[Any]:
    """A connection whose search_path is the store's schema."""
    conn = await asyncpg.connect(postgres_server.server().url)
    try:
        await conn.execute(f"set search_path = {store._options.quoted_schema}")
        yield conn
    finally:
        await conn.close()


def new_task(**fields: Any) -> NewTask:
    return NewTask(**({"id": ids.task_id(), "name": "probe", "payload": "null"} | fields))


def request(**fields: Any) -> ClaimRequest:
    return ClaimRequest(**({"worker_id": "worker-1", "claim_id": ids.token()} | fields))


async def claim_one(store: PostgresStore, **fields: Any) -> Claim:
    (claim,) = (await store.claim(request(**fields))).claims
    return claim
