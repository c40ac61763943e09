"""A worker process of the chaos test: `python -m tests.acceptance.chaos_worker URL CALM`.

How an attempt ends is drawn from its task and its number, so that it does not matter who runs it. Once the file CALM
exists, every attempt completes.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

from holdfast import Context, Failure, Holdfast, Snooze, Unrecoverable

LEASE_SECONDS = 1.5
WORK = "work"


def declare(app: Holdfast, calm: Path) -> None:
    @app.task(name=WORK, takes_context=True)
    async def work(ctx: Context, results: list[Any], trouble: float) -> dict[str, Any]:
        """Who it is, and of which parents it saw what; None for one that did not complete."""
        rng = random.Random(f"{ctx.id} {ctx.attempt}")
        await asyncio.sleep(rng.random() * 0.02)
        meet(rng, 0.0 if is_there(calm) else trouble)
        return {"id": ctx.id, "saw": [None if isinstance(one, Failure) else one["id"] for one in results]}


def is_there(file: Path) -> bool:
    return file.exists()


def meet(rng: random.Random, trouble: float) -> None:
    """The first third of the trouble ends the task, the second counts as a failure, the last only takes time."""
    drawn = rng.random()
    if drawn < trouble / 3:
        raise Unrecoverable("for good")
    if drawn < trouble * 2 / 3:
        raise RuntimeError("once more")
    if drawn < trouble:
        raise Snooze(0.05)


def main(url: str, calm: str) -> None:
    app = Holdfast(url)
    declare(app, Path(calm))
    app.worker(concurrency=8, lease=LEASE_SECONDS, poll_interval=0.1, grace=5).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
