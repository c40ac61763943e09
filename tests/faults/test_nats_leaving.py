"""A handle on a NATS store leaves nothing behind in its process: no socket, no task, no word on stderr."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.acceptance.processes import PROJECT
from tests.cut_proxy import Plan, never
from tests.faults.nats_support import place
from tests.nats_link import NatsProxy


@pytest.mark.parametrize("probability", [0.0, 0.3], ids=["in peace", "with cuts"])
def test_a_handle_that_is_closed_leaves_nothing_behind(probability: float) -> None:
    """Python tells of what was not closed, and of tasks that nobody awaited."""
    with place() as url, NatsProxy(url) as proxy:
        proxy.decide = Plan(1, probability) if probability else never
        command = [sys.executable, "-W", "error", "-m", "tests.faults.nats_leaver", proxy.url]
        left = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=60, check=False)
        assert (proxy.total > 2) == bool(probability)
    assert (left.returncode, left.stdout, left.stderr) == (0, "", "")
