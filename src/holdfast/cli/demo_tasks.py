"""The cast of the demo: one task for each thing worth seeing."""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

from holdfast.app import Holdfast
from holdfast.context import current_task
from holdfast.declared import DeclaredTask
from holdfast.handle import Handle
from holdfast.model.backoff import Delays, Fixed
from holdfast.workflows.forms import chain, group
from holdfast.workflows.run import Run

QUEUE, BURST_QUEUE, PRINTER_QUEUE = "demo", "demo-burst", "demo-printer"
GREETINGS = 20
PAGES = ("holdfast holds fast", "what is begun is finished", "once", "or it is told", "why it was not")
SHEETS = 6
PRINTERS = 2
DATASET = "demo-words"


class Cast(NamedTuple):
    greet: DeclaredTask[[str], str, Any]
    resize: DeclaredTask[[int], int, int]
    fetch: DeclaredTask[[str], str, Any]
    parse: DeclaredTask[[str], None, Any]
    remind: DeclaredTask[[str], str, Any]
    charge: DeclaredTask[[int], int, Any]
    tick: DeclaredTask[[int], int, Any]
    count: DeclaredTask[[str], int, Any]
    total: DeclaredTask[[list[int]], int, Any]
    report: DeclaredTask[[int], str, Any]
    print_sheet: DeclaredTask[[int], int, Any]


class Submitted(NamedTuple):
    followed: dict[str, str]
    """Label to task id, of what is told event by event."""
    charges: list[Handle[int]]
    words: Run[str]
    """A workflow: words are counted side by side, then added up, then told."""
    sheets: list[Handle[int]]
    """Tasks of a queue of which only a few may run at once."""
    distinct: int


def declare(app: Holdfast) -> Cast:
    @app.task(name="demo.greet", queue=QUEUE)
    async def greet(who: str) -> str:
        return f"hello {who}"

    @app.task(name="demo.resize", queue=QUEUE)
    def resize(pictures: int) -> int:
        """A plain function: it runs in a thread and reports how far it is."""
        for done in range(1, pictures + 1):
            time.sleep(0.4)
            current_task().progress(done, pictures, "resizing")
        return pictures

    @app.task(name="demo.fetch", queue=QUEUE, max_attempts=5, backoff=Delays(0.4, 0.8))
    async def fetch(url: str) -> str:
        """Flaky: it fails twice, then heals."""
        if current_task().failures < 2:
            raise ConnectionError("the far side hung up")
        return f"contents of {url}"

    @app.task(name="demo.parse", queue=QUEUE, max_attempts=3, backoff=Fixed(0.3))
    async def parse(text: str) -> None:
        """Poison: it can never succeed, and ends as a dead letter."""
        raise ValueError(f"cannot parse {text!r}")

    @app.task(name="demo.remind", queue=QUEUE)
    async def remind(of: str) -> str:
        return f"remember {of}"

    @app.task(name="demo.charge", queue=QUEUE)
    async def charge(order: int) -> int:
        return order

    @app.task(name="demo.tick", queue=BURST_QUEUE)
    async def tick(number: int) -> int:
        return number

    @app.task(name="demo.count", queue=QUEUE)
    async def count(page: str) -> int:
        """What it writes into a dataset is kept with its completion, or not at all."""
        await asyncio.sleep(0.3)
        words = len(page.split())
        current_task().output(DATASET, [(page, words)], mode="append")
        return words

    @app.task(name="demo.total", queue=QUEUE)
    async def total(counts: list[int]) -> int:
        """The finalizer: it gets what every member gave."""
        return sum(counts)

    @app.task(name="demo.report", queue=QUEUE)
    async def report(words: int) -> str:
        return f"{words} words on {len(PAGES)} pages"

    @app.task(name="demo.print", queue=PRINTER_QUEUE)
    async def print_sheet(number: int) -> int:
        await asyncio.sleep(0.2)
        return number

    return Cast(greet, resize, fetch, parse, remind, charge, tick, count, total, report, print_sheet)


async def submit(app: Holdfast, cast: Cast, run_id: str) -> Submitted:
    """Everything but the burst. `run_id` holds it together, so that a store with other tasks can be used."""
    await app.aenqueue_many([cast.greet.using(run_id=run_id).s(f"guest {number}") for number in range(GREETINGS)])
    charging = cast.charge.using(run_id=run_id, idempotency_key=f"{run_id}:order-7")
    charges = [await charging.aenqueue(7) for _ in range(3)]
    followed: dict[str, Handle[Any]] = {
        "urgent": await cast.greet.using(run_id=run_id, priority=10).aenqueue("the one in a hurry"),
        "slow": await cast.resize.using(run_id=run_id).aenqueue(4),
        "flaky": await cast.fetch.using(run_id=run_id).aenqueue("https://example.org/"),
        "poison": await cast.parse.using(run_id=run_id).aenqueue("<html"),
        "scheduled": await cast.remind.using(run_id=run_id, delay=2).aenqueue("the milk"),
        "duplicates": charges[0],
    }
    ids = {label: handle.id for label, handle in followed.items()}
    words = chain(group(map(cast.count.s, PAGES)), cast.total.then(), cast.report.then())
    run = await words.using(run_id=f"{run_id}-words").aenqueue()
    ids["workflow"] = (await run.atasks())[-1].id
    await app.queues.alimit(PRINTER_QUEUE, max_running=PRINTERS)
    sheets = await app.aenqueue_many([cast.print_sheet.using(run_id=run_id).s(number) for number in range(SHEETS)])
    return Submitted(ids, charges, run, sheets, distinct=GREETINGS + len(followed) + len(PAGES) + 2 + SHEETS)
