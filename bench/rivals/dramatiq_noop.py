"""Dramatiq on Redis: 16 threads in each process."""

from __future__ import annotations

import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.rivals import roles

THREADS = 16

dramatiq.set_broker(RedisBroker(url=roles.URL))


@dramatiq.actor(queue_name="bench")
def noop(_number: int) -> None:
    roles.count()


def fill(tasks: int) -> None:
    for number in range(tasks):
        noop.send(number)


def work() -> None:
    """Its command line is its worker."""
    os.execv(
        sys.executable,
        [sys.executable, "-m", "dramatiq", "bench.rivals.dramatiq_noop", "-p", "1", "-t", str(THREADS)],
    )


if __name__ == "__main__":
    roles.play(setup=lambda: None, fill=fill, work=work)
