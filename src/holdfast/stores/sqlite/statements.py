"""The SQL of this store: one file per statement in sql/, read once. Data reaches SQL only as bound parameters."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_MOST = 2**62
_encode = msgspec.json.Encoder().encode


@cache
def statement(name: str) -> str:
    return files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def text_param(text: object) -> str | bytes:
    """A text to look for. What is no text, or not Unicode, goes in as bytes, which equal no text ever stored."""
    if not isinstance(text, str):
        return b""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def number_param(number: int) -> int:
    """A number to compare with. Beyond what SQLite can hold it equals none that is stored, and neither does this."""
    return max(-_MOST, min(number, _MOST))


def json_param(value: Any) -> str:
    """A whole batch as one parameter, for json_each.

    Python's sqlite3 gives up the interpreter lock at every step of a statement, and beside a busy event loop each
    time costs up to a switch interval to get it back; so a batch goes in as one text and comes out as one row.
    """
    return _encode(value).decode()
