"""The SQL of this store: one file per statement in sql/, read once, with the schema's name put in. What several share
stands in sql/parts.

That name is checked and quoted (options.py). Data reaches SQL only as bound parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

_PART = re.compile(r"\{include (\w+)\}")
_PLACE = re.compile(r"'?\{schema\}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_UUIDS = re.compile(f"(?:{_UUID.pattern},)*")
_encode = msgspec.json.Encoder().encode


@cache
def statement(schema: str, name: str) -> str:
    """`schema` is quoted."""
    return filled(_PART.sub(lambda part: _read("parts", part[1]), _read(name)), schema)


def _read(*names: str) -> str:
    *folders, name = names
    return files(__package__).joinpath("sql", *folders, f"{name}.sql").read_text(encoding="utf-8")


def filled(sql: str, schema: str) -> str:
    """With the schema's name, which is quoted, put in: as part of a literal where it opens one, else as it is."""
    literal = schema.replace("'", "''")
    return _PLACE.sub(lambda place: f"'{literal}" if place[0].startswith("'") else schema, sql)


def is_uuid(text: str) -> bool:
    """Only the canonical text: in another spelling it is another id, here as on every store."""
    return _UUID.fullmatch(text) is not None


def all_uuids(texts: Sequence[str]) -> bool:
    """The same of many, at a fraction of the price: as many commas as texts leave none for the inside of one."""
    joined = ",".join(texts) + "," if texts else ""
    return joined.count(",") == len(texts) and _UUIDS.fullmatch(joined) is not None


def literal(values: Iterable[object]) -> str:
    """Numbers or checked UUIDs as the text of an array. The driver would look at every element of a list twice."""
    return "{" + ",".join(map(str, values)) + "}"


def uuids(texts: Iterable[str]) -> list[str]:
    """Those that can be somebody's id at all."""
    return [text for text in texts if _UUID.fullmatch(text)]


def is_text(text: str | None) -> bool:
    """Can a text like this ever have been stored?"""
    if text is None:
        return True
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def json_text(value: Any) -> str:
    return _encode(value).decode()
