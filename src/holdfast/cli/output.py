"""What people and programs see: tables, JSON lines, times in words, colour.

Everything that comes from tasks is hostile: it is escaped here, once, on its way to the terminal. Data goes to stdout,
talk to stderr; colour only where a person looks.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TextIO

import msgspec

from holdfast.events.log import safe as safe

CELL_CHARS = 60
LAST_CELL_CHARS = 200

_STYLES = {
    "completed": "32",
    "ok": "32",
    "alive": "32",
    "failed": "31",
    "fail": "31",
    "error": "31",
    "running": "36",
    "retrying": "33",
    "scheduled": "33",
    "paused": "33",
    "warn": "33",
    "stale": "33",
    "canceled": "2",
    "header": "1",
}
_UNPRINTABLE = re.compile(r"[^ -~]")


class Styled(NamedTuple):
    """A cell in the colour of its meaning."""

    text: str
    style: str


Cell = str | Styled


class _Choice:
    no_color = False


def refuse_color() -> None:
    _Choice.no_color = True


def colored(stream: TextIO) -> bool:
    if _Choice.no_color or os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def painted(text: str, style: str, stream: TextIO) -> str:
    code = _STYLES.get(style)
    return f"\x1b[{code}m{text}\x1b[0m" if code and colored(stream) else text


# Streams


def put(line: str) -> None:
    """A line of data, already escaped."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """A line of talk; escaped here."""
    sys.stderr.write(f"{safe(line, 4000)}\n")
    sys.stderr.flush()


def put_json(value: Any) -> None:
    put(json_line(value))


def json_line(value: Any) -> str:
    """One line of JSON: structs by field name, instants in ISO 8601 with Z, nothing a terminal would obey."""
    text = msgspec.json.encode(value).decode()
    return text if text.isprintable() else _UNPRINTABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    char = found.group()
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


# Tables


def put_table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Aligned columns; the last one takes what is left of the line on a terminal."""
    body = [[_cell(cell, last=i == len(headers) - 1) for i, cell in enumerate(row)] for row in rows]
    widths = [
        max(map(_width, column)) for column in zip(headers, *([c.text for c in row] for row in body), strict=True)
    ]
    put(_line([Styled(header, "header") for header in headers], widths))
    for row in body:
        put(_line(row, widths))


def put_fields(pairs: Iterable[tuple[str, Cell]]) -> None:
    """One name and value per line; a value of several lines is indented below its name."""
    shown = [(name, cell if isinstance(cell, Styled) else Styled(cell, "")) for name, cell in pairs]
    width = max(len(name) for name, _ in shown)
    for name, cell in shown:
        lines = [safe(line, 4000) for line in cell.text.split("\n")]
        first = painted(lines[0], cell.style, sys.stdout) if len(lines) == 1 else ""
        put(f"{painted(name.ljust(width), 'header', sys.stdout)}  {first}".rstrip())
        if len(lines) > 1:
            for line in lines:
                put(f"    {line}")


def _cell(cell: Cell, *, last: bool) -> Styled:
    text, style = cell if isinstance(cell, Styled) else (cell, "")
    return Styled(safe(text, LAST_CELL_CHARS if last else CELL_CHARS), style)


def _line(cells: Sequence[Styled], widths: Sequence[int]) -> str:
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    shown = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        last = i == len(cells) - 1
        text = _cut(cell.text, max(room - sum(widths[:-1]) - 2 * i, 10)) if last and room else cell.text
        padding = "" if last else " " * (width - _width(text))
        shown.append(painted(text, cell.style, sys.stdout) + padding)
    return "  ".join(shown).rstrip()


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _cut(text: str, room: int) -> str:
    return text if _width(text) <= room else f"{text[: room - 1]}…"


# Words


def when(instant: datetime | None, now: datetime) -> str:
    """`in 5 m`, `3 s ago`; a dash where there is no instant."""
    if instant is None:
        return "-"
    away = (instant - now).total_seconds()
    if abs(away) < 1:
        return "now"
    return f"in {span(away)}" if away > 0 else f"{span(-away)} ago"


def span(seconds: float | timedelta) -> str:
    """A length of time in its largest fitting unit."""
    if isinstance(seconds, timedelta):
        seconds = seconds.total_seconds()
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s".replace(".0 s", " s")


def many(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json_line(value)


class Live:
    """Lines that stay, and below them, on a terminal, one that is rewritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    @property
    def rewrites(self) -> bool:
        return self._live

    def line(self, text: str) -> None:
        self._clear()
        self._stream.write(f"{safe(text, 1000)}\n")
        self._stream.flush()

    def status(self, text: str) -> None:
        """Rewritten by the next one; nothing where the stream is not a terminal."""
        if self._live:
            self._clear()
            self._stream.write(_cut(safe(text, 1000), shutil.get_terminal_size().columns - 1))
            self._stream.flush()
            self._shown = True

    def close(self) -> None:
        self._clear()
        self._stream.flush()

    def _clear(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._shown = False
