"""What other processes do to the file in the tests: `python -m tests.stores.sqlite_children ACT PATH`.

Each says a line when it has got somewhere, and waits for a line where the test decides when it goes on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.model.outbox import Delivery, Effect, NewSink
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.output import Mode, Output, OutputRow
from holdfast.model.query import WorkerInfo
from holdfast.stores.sqlite import rest
from tests.stores.sqlite_support import claim_one, handle, new_task, opened, request


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def hold(path: Path) -> None:
    """Keep a write transaction open, as a forgotten shell would."""
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute("BEGIN IMMEDIATE")
    say("held")
    sys.stdin.readline()
    conn.execute("COMMIT")
    conn.close()


def first_use(path: Path) -> None:
    """Open a file that may not be there yet, at the same moment as others."""

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])

    say("here")
    sys.stdin.readline()
    asyncio.run(use())
    say("done")


def work(path: Path) -> None:
    """Enroll, claim for an hour, and never come back to it."""
    store = handle(path)

    async def use() -> None:
        worker = WorkerInfo(id="worker-child", host="here", pid=os.getpid(), queues=None, concurrency=1, version="1")
        await store.enroll(worker)
        say((await claim_one(store, worker_id=worker.id, lease_seconds=3600.0)).task_id)

    asyncio.run(use())
    sys.stdin.readline()
    if os.fork() == 0:
        say(f"{os.getpid()}")
        signal.pause()
    sys.stdin.readline()


def submit_for_ever(path: Path) -> None:
    """Say every id whose submit was acknowledged."""

    async def use() -> None:
        async with opened(path) as store:
            while True:
                acknowledged = await store.submit([new_task(payload='"' + "x" * 5000 + '"') for _ in range(5)])
                say(" ".join(submitted.id for submitted in acknowledged))

    asyncio.run(use())


def advance(path: Path) -> None:
    """Go on with what settles have left, in small steps; say each."""

    async def use() -> None:
        async with opened(path) as store:
            while done := await store.advance(limit=20, actor="child"):
                say(f"{done}")

    asyncio.run(use())


def drain(path: Path) -> None:
    """Claim some and complete one of them after the other, until nothing is left to run."""

    async def use() -> None:
        async with opened(path, synchronous="normal") as store:
            while (await store.run("run")).counts.get("queued"):  # type: ignore[union-attr]
                for claim in (await store.claim(request(worker_id=f"worker-{os.getpid()}", limit=3))).claims:
                    await store.settle([Settlement(claim.lease, Completed())])

    say("here")
    sys.stdin.readline()
    asyncio.run(use())
    say("done")


def declare(path: Path) -> None:
    """Make a sink known."""

    async def use() -> None:
        async with opened(path) as store:
            await store.declare_sink(NewSink(name="hook", url="https://example.org", effect=Effect.ROUTE))

    asyncio.run(use())
    say("declared")


def take(path: Path) -> None:
    """Take what is due, say which, and never come back to it."""

    async def use() -> None:
        async with opened(path) as store:
            rows = await store.take_outbox(["hook"], limit=10, hold="relay-child", hold_seconds=30.0)
            say(" ".join(str(row.id) for row in rows))
            sys.stdin.readline()

    asyncio.run(use())


def relay(path: Path) -> None:
    """Tell all that there is, some at a time: row, task and when it was told."""
    hold = f"relay-{os.getpid()}"

    async def use() -> None:
        async with opened(path, synchronous="normal") as store:
            while await store.outbox(sink=None, state=None, limit=1, after=0):
                rows = await store.take_outbox(["hook"], limit=7, hold=hold, hold_seconds=30.0)
                for row in rows:
                    say(f"{row.id} {row.task_id} {SYSTEM_CLOCK.micros()}")
                await store.record_deliveries([Delivery(row_id=row.id, hold=hold) for row in rows])

    say("here")
    sys.stdin.readline()
    asyncio.run(use())


def write_for_ever(path: Path) -> None:
    """Complete task after task, each with a row of its own; say the id of each that was acknowledged."""

    async def use() -> None:
        async with opened(path) as store:
            while True:
                await store.submit([new_task()])
                claim = await claim_one(store)
                output = Output("orders", Mode.APPEND, (OutputRow(claim.task_id, "1"), OutputRow("same", "1")))
                await store.settle([Settlement(claim.lease, Completed(), outputs=(output,))])
                say(claim.task_id)

    asyncio.run(use())


def write(path: Path) -> None:
    """Claim and complete until nothing is left, each with a row of its own."""

    async def use() -> None:
        async with opened(path, synchronous="normal") as store:
            while claims := (await store.claim(request(limit=3))).claims:
                for claim in claims:
                    output = Output("orders", Mode.APPEND, (OutputRow(claim.task_id, "1"),))
                    await store.settle([Settlement(claim.lease, Completed(), outputs=(output,))])

    say("here")
    sys.stdin.readline()
    asyncio.run(use())
    say("done")


def fork(path: Path) -> None:
    """Use one handle before a fork, in the child, and in the parent after the child has ended in the ordinary way."""
    store = handle(path)
    tasks = [new_task(), new_task(), new_task()]
    asyncio.run(store.submit(tasks[:1]))
    child = os.fork()
    if child == 0:
        asyncio.run(store.submit(tasks[1:2]))
        asyncio.run(store.close())
        return
    _, status = os.waitpid(child, 0)

    async def use() -> None:
        await store.submit(tasks[2:])
        say(" ".join(["found" if await store.get(task.id) else "lost" for task in tasks]))
        await store.close()

    asyncio.run(use())
    say(f"child ended with {status}")


def fork_and_close(path: Path) -> None:
    """1. use; 2. fork; 3. the child submits; 4. the parent closes the file; 5. the child submits again; 6. look."""
    store = handle(path)
    asyncio.run(store.submit([new_task()]))
    asyncio.run(store.get("nobody"))
    submitted, closed = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        asyncio.run(store.submit([new_task()]))
        os.write(submitted[1], b"1")
        os.read(closed[0], 1)
        asyncio.run(store.submit([new_task() for _ in range(10)]))
        os._exit(0)
    os.read(submitted[0], 1)
    asyncio.run(store.close())
    os.write(closed[1], b"1")
    _, status = os.waitpid(child, 0)
    say(f"child ended with {status}")


def fork_while_reading(path: Path) -> None:
    """A read that does not end keeps a connection open through the fork: its child must leave the file alone."""
    store = handle(path)
    rest.LONGEST_SECONDS = 0.05
    reading, enough = threading.Event(), threading.Event()

    def slow(_: sqlite3.Connection) -> None:
        reading.set()
        enough.wait()

    def read() -> None:
        asyncio.run(store._engine.read(slow))

    asyncio.run(store.submit([new_task()]))
    reader = threading.Thread(target=read)
    reader.start()
    reading.wait()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(store.submit([new_task()]))
        except StoreUnavailable as refused:
            say("refused" if "forked" in str(refused) else str(refused))
        os._exit(0)
    os.waitpid(child, 0)
    enough.set()
    reader.join()
    asyncio.run(store.submit([new_task()]))
    asyncio.run(store.close())
    say("the parent goes on")


ACTS = {
    "hold": hold,
    "first_use": first_use,
    "work": work,
    "submit_for_ever": submit_for_ever,
    "advance": advance,
    "drain": drain,
    "declare": declare,
    "take": take,
    "relay": relay,
    "write_for_ever": write_for_ever,
    "write": write,
    "fork": fork,
    "fork_and_close": fork_and_close,
    "fork_while_reading": fork_while_reading,
}

if __name__ == "__main__":
    ACTS[sys.argv[1]](Path(sys.argv[2]))
