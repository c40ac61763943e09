"""A very wide fan-in through `holdfast serve` on PostgreSQL: it ends, and no process holds more than it must."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast, chord
from tests import postgres_server
from tests.runtime.support import Crew

MEMBERS = 100_000
MOST_BYTES = 600 << 20
"""Of the dispatcher, at its peak: the submit's body, and what is made of it."""


@pytest.mark.soak
def test_a_chord_of_100_000_members_ends_through_a_dispatcher(tmp_path: Path) -> None:
    store = f"{postgres_server.server().url}?schema={postgres_server.fresh_schema()}"
    command = [sys.executable, "-m", "holdfast", "--url", store, "--json", "serve", "--port", "0"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env=os.environ) as service,
    ):
        try:
            assert service.stdout is not None
            _run(msgspec.json.decode(service.stdout.readline())["url"])
            assert _peak(service.pid) < MOST_BYTES
        finally:
            service.terminate()


def _run(url: str) -> None:
    with Holdfast(url) as app:

        @app.task(name="one")
        async def one(number: int) -> int:
            return number

        @app.task(name="total")
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        with Crew(app, concurrency=100):
            run = chord([one.s(number) for number in range(MEMBERS)], total.then()).enqueue()
            assert run.result(timeout=170) == sum(range(MEMBERS))


def _peak(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
