"""What a store wants to ask over somebody else's connection, apart from how that connection is asked.

A script is a generator: it yields questions, gets their rows, and returns the answer. So the same script runs over
plain and async drivers, and only the walking differs (callers.py).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Rows = Sequence[Sequence[Any]]


class Ask(NamedTuple):
    """A statement with $1, $2, … in this order, each once, and their values: texts or None."""

    sql: str
    values: tuple[str | None, ...]


Script = Generator[Ask, Rows, T]

_DOLLAR = re.compile(r"\$\d+")
_MARKS = {"numeric_dollar": None, "pyformat": "%s", "format": "%s", "qmark": "?"}


def in_style(sql: str, paramstyle: str) -> str:
    """The statement with the driver's own marks for its values."""
    mark = _MARKS[paramstyle]
    return sql if mark is None else _DOLLAR.sub(mark, sql)


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code of this error, from under whatever libraries have wrapped around it; empty if it has none."""
    found = _innermost(error)
    return str(getattr(found, "sqlstate", None) or getattr(found, "pgcode", None) or "")


def message(error: BaseException) -> str:
    """The server's own first line."""
    return str(_innermost(error)).partition("\n")[0]


def _innermost(error: BaseException) -> BaseException:
    seen: BaseException | None = error
    while seen is not None:
        error, seen = seen, getattr(seen, "orig", None) or seen.__cause__
    return error
