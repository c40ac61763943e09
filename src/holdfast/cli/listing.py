"""What every `list` does with what it found: JSON, one object per line; else a table, or words where there is nothing;
and where the page is full, how to get the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.cli import output
from holdfast.cli.options import Session
from holdfast.cli.output import Cell

T = TypeVar("T")


def put_listing(
    session: Session,
    found: Sequence[T],
    headers: Sequence[str],
    row: Callable[[T], Sequence[Cell]],
    *,
    nothing: str,
    record: Callable[[T], Any] | None = None,
) -> None:
    """`record`: what a program gets of each, where that is not the thing itself."""
    if session.json:
        for one in found:
            output.put_json(one if record is None else record(one))
    elif found:
        output.put_table(headers, map(row, found))
    else:
        output.say(nothing)


def say_more(session: Session, page: Sequence[T], limit: int, go_on: Callable[[T], str]) -> None:
    """`go_on`: the options of the next page, from the last one of this page."""
    if len(page) == limit and not session.json:
        output.say(f"there may be more: {go_on(page[-1])}")
