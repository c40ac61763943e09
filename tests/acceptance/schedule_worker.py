"""A worker process with a schedule that fires every second: `python -m tests.acceptance.schedule_worker URL`."""

from __future__ import annotations

import logging
import sys

from holdfast import Holdfast

NAME = "tick"


def main(url: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    app = Holdfast(url)

    @app.schedule(every=1, missed="all")
    @app.task(name=NAME)
    async def tick() -> None: ...

    app.worker(concurrency=5, poll_interval=0.2, grace=5).run()


if __name__ == "__main__":
    main(sys.argv[1])
