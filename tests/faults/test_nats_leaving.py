"""A handle on a NATS store leaves nothing behind in its process: no socket, no task, no word on stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.processes import PROJECT
from tests.faults.nats_support import place


@pytest.mark.parametrize("away", [[], ["away"]], ids=["there", "away"])
def test_a_handle_that_is_closed_leaves_nothing_behind(away: list[str]) -> None:
    """Python's development mode tells of what was not closed, and of tasks that nobody awaited."""
    with place() as url:
        command = [sys.executable, "-X", "dev", "-W", "error", "-m", "tests.faults.nats_leaver", url, *away]
        left = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
    assert (left.returncode, left.stdout, left.stderr) == (0, "", "")
