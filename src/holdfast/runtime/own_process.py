"""Settings for a process that is nothing but a worker. A library must not touch them in somebody else's process."""

from __future__ import annotations

import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable

SWITCH_SECONDS = 0.0005


def tune() -> None:
    """Let threads take turns ten times as often as Python's default.

    A store's thread gives up the interpreter for every statement and must wait for a busy event loop to get it back;
    with the default of 5 ms a no-op drain on SQLite is about a sixth slower.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """uvloop's, where it is installed (`pip install holdfast[uvloop]`); else Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
