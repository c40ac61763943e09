"""What every rival's script can be told to do, in an environment of its own: python -m bench.rivals.NAME ROLE.

    setup     make the tables it needs, in an empty database
    fill N    enqueue N no-op tasks, by the fastest way the library offers
    feed      the same for every number on standard input
    work      be one worker process, until it is ended

RIVAL_URL says where the store is, RIVAL_TALLY names a file to which every handler adds one byte (about 1 µs).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

URL = os.environ.get("RIVAL_URL", "")
_tally = -1


def count() -> None:
    """The body of every handler."""
    global _tally
    if _tally < 0:
        _tally = os.open(os.environ["RIVAL_TALLY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_tally, b".")


def play(*, fill: Callable[[int], object], work: Callable[[], object], setup: Callable[[], object]) -> None:
    match sys.argv[1:]:
        case ["setup"]:
            setup()
        case ["fill", tasks]:
            fill(int(tasks))
        case ["feed"]:
            for line in sys.stdin:
                fill(int(line))
        case ["work"]:
            work()
        case other:
            raise SystemExit(f"no such role: {' '.join(other)}")
