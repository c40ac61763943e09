"""What the tests of the SQLite store share: handles, tasks, and children that run sqlite_children.py."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.task import NewTask
from holdfast.stores.sqlite.options import parsed
from holdfast.stores.sqlite.store import SQLiteStore

ROOT = Path(__file__).parent.parent.parent


def handle(path: Path, clock: Clock = SYSTEM_CLOCK, **options: Any) -> SQLiteStore:
    return SQLiteStore(parsed(f"sqlite:///{path}", options), clock)


@asynccontextmanager
async def opened(path: Path, clock: Clock = SYSTEM_CLOCK, **options: Any) -> AsyncIterator[SQLiteStore]:
    store = handle(path, clock, **options)
    try:
        yield store
    finally:
        await store.close()


def with_store(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A coroutine as a test: its `store` is a fresh one, its other parameters are pytest's."""

    @wraps(test)
    def run(*, tmp_path: Path, **given: Any) -> None:
        async def use() -> None:
            async with opened(tmp_path / "tasks.db", synchronous="normal") as store:
                await test(store=store, **given)

        asyncio.run(use())

    given = [one for name, one in signature(test).parameters.items() if name != "store"]
    run.__signature__ = Signature([*given, Parameter("tmp_path", Parameter.KEYWORD_ONLY)])  # type: ignore[attr-defined]
    return run


def query(store: SQLiteStore, sql: str) -> list[Any]:
    """What another connection reads in the store's file."""
    with closing(sqlite3.connect(store.label.removeprefix("sqlite:///"))) as conn:
        return conn.execute(sql).fetchall()


def new_task(**fields: Any) -> NewTask:
    return NewTask(**({"id": ids.task_id(), "name": "probe", "payload": "null"} | fields))


def request(**fields: Any) -> ClaimRequest:
    return ClaimRequest(**({"worker_id": "worker-1", "claim_id": ids.token()} | fields))


async def claim_one(store: SQLiteStore, **fields: Any) -> Claim:
    (claim,) = (await store.claim(request(**fields))).claims
    return claim


class Child:
    """A process that says lines and is told to go on by lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def said(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def said_all(self) -> list[str]:
        """What it said until it ended; a last line that was cut off is left out."""
        assert self.process.stdout is not None
        return [line[:-1] for line in self.process.stdout if line.endswith("\n")]

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def child(act: str, path: Path) -> Iterator[Child]:
    command = [sys.executable, "-m", "tests.stores.sqlite_children", act, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            process.kill()
