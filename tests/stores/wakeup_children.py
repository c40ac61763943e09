"""What other processes do in the tests of wake-ups: `python -m tests.stores.wakeup_children ACT URL`.

Each says a line when it has got somewhere. Its worker polls once in ten minutes: what it does before, it was told of.
"""

from __future__ import annotations

import os
import sys
import threading

from holdfast import Holdfast
from tests.stores.postgres_support import NEVER_SECONDS


def declared(url: str) -> Holdfast:
    app = Holdfast(url)

    @app.task(name="twice")
    async def twice(number: int) -> int:
        return 2 * number

    return app


def work(url: str) -> None:
    declared(url).worker(poll_interval=NEVER_SECONDS).run()


def fork(url: str) -> None:
    """1. A worker listens, and a handle has waited; 2. fork; 3. the child submits, and waits for what its parent does;
    4. the child ends; 5. the parent still hears another process.
    """
    app = declared(url)
    worker = app.worker(poll_interval=NEVER_SECONDS)
    working = threading.Thread(target=worker.run)
    working.start()
    print("before:", app.enqueue("twice", 1).result(timeout=30), flush=True)
    child = os.fork()
    if child == 0:
        print("child:", app.enqueue("twice", 2).result(timeout=30), flush=True)
        app.close()
        os._exit(0)
    print("child ended:", os.waitpid(child, 0)[1], flush=True)
    sys.stdin.readline()
    worker.stop()
    working.join()
    app.close()


if __name__ == "__main__":
    {"work": work, "fork": fork}[sys.argv[1]](sys.argv[2])
