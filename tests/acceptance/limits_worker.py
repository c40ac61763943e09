"""A worker process of the test of limits: `python -m tests.acceptance.limits_worker URL`."""

from __future__ import annotations

import asyncio
import sys

from holdfast import Fixed, Holdfast
from holdfast.declared import DeclaredTask

LEASE_SECONDS = 1.0


def declare(app: Holdfast) -> DeclaredTask[[float], None, object]:
    @app.task(name="hold", max_attempts=0, backoff=Fixed(0.05))
    async def hold(seconds: float) -> None:
        await asyncio.sleep(seconds)

    return hold


def main(url: str) -> None:
    app = Holdfast(url)
    declare(app)
    app.worker(concurrency=4, lease=LEASE_SECONDS, poll_interval=0.1, grace=5).run()


if __name__ == "__main__":
    main(sys.argv[1])
