"""Worker processes, started as a user would start them, and what they cost while they work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from holdfast.errors import HoldfastError

STOP_SECONDS = 20.0


class Crew:
    """So many `holdfast worker` processes on one store, until the block ends."""

    def __init__(self, url: str, *, processes: int = 1, concurrency: int = 100, options: tuple[str, ...] = ()) -> None:
        self._command = [sys.executable, "-m", "holdfast", "worker", "--app", "holdfast.bench.noops:app"]
        self._command += ["--concurrency", str(concurrency), "--log-level", "error", "--log-format", "json", *options]
        self._environment = os.environ | {"HOLDFAST_URL": url}
        self._processes = processes
        self.members: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Crew:
        for _ in range(self._processes):
            self.members.append(
                subprocess.Popen(self._command, env=self._environment, stdout=subprocess.DEVNULL)  # noqa: S603
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self.members:
            member.terminate()
        for member in self.members:
            try:
                member.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()

    def require_alive(self) -> None:
        for member in self.members:
            if member.poll() is not None:
                raise HoldfastError(f"a worker process ended with code {member.returncode} while it was measured")

    def cpu_seconds(self) -> float:
        """User and system time of all members so far."""
        return sum(_cpu_seconds(member.pid) for member in self.members)

    def peak_mib(self) -> float:
        """The most memory that a member has held so far."""
        return max(_peak_mib(member.pid) for member in self.members)


def _cpu_seconds(pid: int) -> float:
    """By the process's own CPU clock as Linux numbers it: `/proc` counts in ticks, too coarse for a short run."""
    return time.clock_gettime((~pid << 3) | 2)


def _peak_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise HoldfastError("this system does not tell a process's peak memory")
