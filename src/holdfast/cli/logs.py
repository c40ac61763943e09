"""Where log lines go and how they look. Only the command line configures logging; the library never does."""

from __future__ import annotations

import logging
import sys
from typing import Any

from holdfast.cli.output import json_line
from holdfast.clock import from_micros, iso

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("console", "json")


def configure(level: str, form: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else ConsoleLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


class ConsoleLines(logging.Formatter):
    """`12:34:56.789 INFO    holdfast.worker  worker.started …`, nothing in it that a terminal would obey."""

    def format(self, record: logging.LogRecord) -> str:
        moment = from_micros(round(record.created * 1_000_000)).strftime("%H:%M:%S.%f")[:-3]
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        return f"{moment} {record.levelname:<7} {record.name}  {_obeyed_by_none(text)}"


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": iso(round(record.created * 1_000_000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage().encode(errors="backslashreplace").decode(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info).encode(errors="backslashreplace").decode()
        return json_line(line)


def _obeyed_by_none(text: str) -> str:
    """Newlines stay: handlers of the user's own log tracebacks."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
