"""How a script is walked over a connection: statement by statement, at once or awaited."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from holdfast.errors import NotSupported
from holdfast.stores.joined.script import Ask, Rows, Script

T = TypeVar("T")

POSTGRESQL, SQLITE = "postgresql", "sqlite"


class Caller(Protocol):
    """Somebody else's connection."""

    @property
    def dialect(self) -> str:
        """The kind of database behind it."""

    @property
    def awaited(self) -> bool:
        """Only the async forms work."""

    def walk(self, script: Script[T]) -> T: ...

    async def awalk(self, script: Script[T]) -> T: ...

    def sqlite(self) -> sqlite3.Connection:
        """The bare connection under it, where the database is SQLite."""


class PlainCaller:
    """A connection whose calls return rows. In async code it blocks the loop for as long as the database takes."""

    awaited = False

    def __init__(self, dialect: str, fetch: Callable[[Ask], Rows], sqlite: Callable[[], Any] | None = None) -> None:
        self.dialect = dialect
        self._fetch = fetch
        self._sqlite = sqlite

    def walk(self, script: Script[T]) -> T:
        try:
            ask = next(script)
            while True:
                try:
                    rows = self._fetch(ask)
                except Exception as error:
                    ask = script.throw(error)
                else:
                    ask = script.send(rows)
        except StopIteration as end:
            answer: T = end.value
            return answer

    async def awalk(self, script: Script[T]) -> T:
        return self.walk(script)

    def sqlite(self) -> sqlite3.Connection:
        found = None if self._sqlite is None else self._sqlite()
        if not isinstance(found, sqlite3.Connection):
            raise NotSupported(f"a {type(found).__name__} cannot be joined; use one over Python's own sqlite3")
        return found


class AsyncCaller:
    """A connection whose calls are awaited."""

    awaited = True

    def __init__(self, dialect: str, fetch: Callable[[Ask], Awaitable[Rows]]) -> None:
        self.dialect = dialect
        self._fetch = fetch

    def walk(self, script: Script[T]) -> T:
        script.close()
        raise RuntimeError("this connection is async; use the form with an `a` in front: `await …aenqueue(…)`")

    async def awalk(self, script: Script[T]) -> T:
        try:
            ask = next(script)
            while True:
                try:
                    rows = await self._fetch(ask)
                except Exception as error:
                    ask = script.throw(error)
                else:
                    ask = script.send(rows)
        except StopIteration as end:
            answer: T = end.value
            return answer

    def sqlite(self) -> sqlite3.Connection:
        raise NotSupported("an async SQLite connection cannot be joined; use one over Python's own sqlite3")
