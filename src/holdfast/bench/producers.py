"""What wake-ups cost those who submit: commits per second of concurrent producers, with them and without.

A notification sent by every submit would make commits wait in line. An idle worker listens all the while; it watches
another queue, so that it stays idle.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from urllib.parse import urlsplit

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError

PROCESSES = 2
WITHOUT = "wakeups=off"
"""The option of a PostgreSQL URL for a handle that neither tells nor listens."""
ROUNDS = 4


class Producers(msgspec.Struct, frozen=True, kw_only=True):
    producers: int
    seconds: float
    """Of each of the two ways, in rounds that take turns."""
    with_wakeups_per_s: float
    without_wakeups_per_s: float
    ratio: float


def producers(url: str, *, producers: int, seconds: float) -> Producers:
    stores.require_postgres(url, "what wake-ups cost")
    without = url + ("&" if urlsplit(url).query else "?") + WITHOUT
    told = untold = 0.0
    with Holdfast(url) as app:
        stores.require_empty(app)
        with Crew(url, options=("--queues", "elsewhere")) as crew:
            stores.wait_until(
                lambda: bool(app.workers.list()), "the listener to be enrolled", still_well=crew.require_alive
            )
            for _ in range(ROUNDS):
                told += _commits(url, producers, seconds / ROUNDS)
                untold += _commits(without, producers, seconds / ROUNDS)
            crew.require_alive()
    return Producers(
        producers=producers,
        seconds=seconds,
        with_wakeups_per_s=round(told / seconds),
        without_wakeups_per_s=round(untold / seconds),
        ratio=round(told / untold, 3),
    )


def _commits(url: str, producers: int, seconds: float) -> int:
    """How many submits were acknowledged in that time, over all processes."""
    each = [producers // PROCESSES + (place < producers % PROCESSES) for place in range(PROCESSES)]
    running = [
        subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "holdfast.bench.producers", str(count), str(seconds)],
            env=os.environ | {"HOLDFAST_URL": url},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for count in each
    ]
    for one in running:
        assert one.stdout is not None
        one.stdout.readline()
    for one in running:
        assert one.stdin is not None
        one.stdin.close()
    done = 0
    for one in running:
        assert one.stdout is not None
        said = one.stdout.read()
        if one.wait() != 0:
            raise HoldfastError(f"a process of producers ended with code {one.returncode}")
        done += int(said)
    return done


async def _produce(count: int, seconds: float) -> None:
    """In a process of producers: each has a handle, hence a connection, of its own."""
    apps = [Holdfast() for _ in range(count)]
    noops = [declare(app).noop for app in apps]
    for noop in noops:
        await noop.aenqueue(0)
    _say("ready")
    sys.stdin.read()
    ends_at = SYSTEM_CLOCK.monotonic() + seconds
    done = 0

    async def produce(place: int) -> None:
        nonlocal done
        while SYSTEM_CLOCK.monotonic() < ends_at:
            await noops[place].aenqueue(done)
            done += 1

    await asyncio.gather(*map(produce, range(count)))
    _say(str(done))
    for app in apps:
        await app.aclose()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_produce(int(sys.argv[1]), float(sys.argv[2])))
