"""`holdfast demo`: a handful of tasks, a worker in this process, everything shown as it happens, and a summary.

The tasks themselves are in demo_tasks.py. What is shown is read from the store, like everything else here.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast import ids
from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.demo_service import dispatcher as served
from holdfast.cli.demo_tasks import (
    BURST_QUEUE,
    DATASET,
    PAGES,
    PRINTER_QUEUE,
    PRINTERS,
    QUEUE,
    Cast,
    Submitted,
    declare,
    submit,
)
from holdfast.cli.options import Command, Session
from holdfast.cli.watch import words
from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.task import Task, TaskStatus

LONGEST_SECONDS = 18.0
BURST = 2000
TICK_SECONDS = 0.05


class DeadLetter(msgspec.Struct, frozen=True):
    id: str
    name: str
    failures: int
    error: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    ok: bool
    problems: list[str]
    store: str
    seconds: float
    counts: dict[str, int]
    retries: int
    dead_letters: list[DeadLetter]
    duplicates: dict[str, Any]
    workflow: dict[str, Any]
    limit: dict[str, Any]
    dataset: dict[str, Any]
    burst: dict[str, Any]


@click.command(cls=Command, examples=["holdfast demo", "holdfast demo --dispatcher", "holdfast demo --keep"])
@click.option("--keep", is_flag=True, help="Keep the SQLite file, to look around in it afterwards.")
@click.option("--dispatcher", is_flag=True, help="Work over HTTP, with the store behind `holdfast serve`.")
@click.pass_obj
def demo(session: Session, keep: bool, dispatcher: bool) -> int:
    """See it work once: tasks that are fast, slow, flaky, poisonous, scheduled, urgent and submitted twice, a workflow
    that writes a dataset, and a queue with a limit.

    Runs a worker in this process on a fresh SQLite file, or on --url, and ends by itself within 20 s. With --dispatcher
    the worker has no access to the database. The exit code is 1 if anything went otherwise than promised.
    """
    if dispatcher and session.url is not None and session.url.startswith("memory:"):
        raise click.UsageError("tasks in memory cannot be served by another process; leave out --url")
    logging.getLogger("holdfast").setLevel(logging.CRITICAL)  # the failures of this play are meant
    live = output.Live(sys.stderr)
    with _place(session.url, keep) as url, served(url) if dispatcher else nullcontext(url) as reached:
        try:
            summary = asyncio.run(Play(Holdfast(reached), live).perform())
        finally:
            live.close()
    if session.json:
        output.put_json(summary)
    else:
        _put_summary(summary, url if (keep or session.url) and not url.startswith("memory:") else None)
    return 0 if summary.ok else 1


@contextmanager
def _place(url: str | None, keep: bool) -> Iterator[str]:
    if url is not None:
        yield url
        return
    folder = tempfile.mkdtemp(prefix="holdfast-demo-")
    try:
        yield f"sqlite:///{Path(folder) / 'demo.db'}"
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


class Play:
    def __init__(self, app: Holdfast, live: output.Live) -> None:
        self._app = app
        self._live = live
        self._cast: Cast = declare(app)
        self._run_id = f"demo-{ids.nonce()}"
        self._seen: dict[str, int] = {}
        self._began_at = SYSTEM_CLOCK.monotonic()

    async def perform(self) -> Summary:
        async with self._app:
            worker = self._app.worker(
                queues=[QUEUE, BURST_QUEUE, PRINTER_QUEUE], concurrency=50, poll_interval=0.2, grace=2
            )
            self._live.line(f"demo on {self._app.client.store.label}")
            submitted = await submit(self._app, self._cast, self._run_id)
            working = asyncio.create_task(worker.arun())
            playing = asyncio.create_task(self._acts(submitted))
            await asyncio.wait({working, playing}, timeout=LONGEST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            interrupted = working.done() and not playing.done()
            if not working.done():
                worker.stop()
            if not playing.done():
                playing.cancel()
            burst, ended = await asyncio.gather(playing, working, return_exceptions=True)
            for raised in (ended, burst):
                if isinstance(raised, Exception):
                    raise raised
            if interrupted:
                raise click.Abort
            return await self._summary(submitted, burst if isinstance(burst, float) else None)

    async def _acts(self, submitted: Submitted) -> float:
        """First the small tasks, told one by one; then the burst. How many seconds the burst took."""
        open_still = True
        while open_still:
            open_still = await self._tell(submitted)
            await asyncio.sleep(TICK_SECONDS)
        return await self._burst()

    async def _tell(self, submitted: Submitted) -> bool:
        """Print what is new; True while something has not ended."""
        records = await self._records()
        now = await self._app.client.store.now()
        for label, task_id in submitted.followed.items():
            await self._tell_events(label, task_id)
        shown = Counter(task.shown_as(now) for task in records)
        self._live.status("   ".join(f"{status} {number}" for status, number in sorted(shown.items())))
        return not all(task.status.terminal for task in records)

    async def _tell_events(self, label: str, task_id: str) -> None:
        for event in await self._app.client.events(task_id, after=self._seen.get(task_id, 0)):
            self._seen[task_id] = event.id
            kind = event.kind.removeprefix("task.")
            if kind not in ("enqueued", "requeued"):
                elapsed = SYSTEM_CLOCK.monotonic() - self._began_at
                self._live.line(f"{elapsed:5.1f} s  {label:<10} {kind:<10} {words(event)}".rstrip())

    async def _burst(self) -> float:
        self._live.line(f"{SYSTEM_CLOCK.monotonic() - self._began_at:5.1f} s  burst      {BURST:,} fast tasks at once")
        before = (await self._app.tasks.acount(BURST_QUEUE))["completed"]
        started_at = SYSTEM_CLOCK.monotonic()
        await self._app.aenqueue_many([self._cast.tick.s(number) for number in range(BURST)])
        while (done := (await self._app.tasks.acount(BURST_QUEUE))["completed"] - before) < BURST:
            self._live.status(f"burst {done:,} of {BURST:,}")
            await asyncio.sleep(TICK_SECONDS / 5)
        return SYSTEM_CLOCK.monotonic() - started_at

    async def _records(self) -> list[Task]:
        own = await self._app.tasks.alist(run_id=self._run_id, limit=1000)
        return own + await self._app.tasks.alist(run_id=f"{self._run_id}-words", limit=1000)

    # Afterwards

    async def _summary(self, submitted: Submitted, took: float | None) -> Summary:
        records = await self._records()
        printed = [task for task in records if task.queue == PRINTER_QUEUE]
        words = await submitted.words.ainfo()
        counted = await self._app.datasets.aget(DATASET)
        problems = _problems(records, submitted)
        if _most_at_once(printed) > PRINTERS:
            problems.append(f"{_most_at_once(printed)} tasks ran at once in a queue that may run {PRINTERS}")
        if took is None:
            problems.append(f"it did not end within {LONGEST_SECONDS:g} s")
        if counted.info.rows != len(PAGES):
            problems.append(f"dataset {DATASET} has {counted.info.rows} rows, not {len(PAGES)}")
        counts = Counter(task.status.value for task in records)
        counts["completed"] += BURST if took is not None else 0
        failed = [task for task in records if task.status is TaskStatus.FAILED]
        retries = [task.failures - (task.status is TaskStatus.FAILED) for task in records]
        return Summary(
            ok=not problems,
            problems=problems,
            store=self._app.client.store.label,
            seconds=round(SYSTEM_CLOCK.monotonic() - self._began_at, 2),
            counts={status.value: counts[status.value] for status in TaskStatus},
            retries=sum(retries),
            dead_letters=[_dead_letter(task) for task in failed],
            duplicates={
                "id": submitted.charges[0].id,
                "submitted": len(submitted.charges),
                "created": sum(handle.created for handle in submitted.charges),
            },
            workflow={
                "run": words.id,
                "status": words.status.value,
                "tasks": sum(words.counts.values()),
                "result": next(task.result for task in records if task.id == submitted.followed["workflow"]),
            },
            limit={
                "queue": PRINTER_QUEUE,
                "tasks": len(printed),
                "max_running": PRINTERS,
                "most_at_once": _most_at_once(printed),
            },
            dataset={"name": DATASET, "version": counted.info.version, "rows": counted.info.rows},
            burst={"tasks": BURST, "seconds": took and round(took, 3), "tasks_per_s": took and round(BURST / took)},
        )


def _most_at_once(tasks: list[Task]) -> int:
    """By when each was claimed and had ended, in the store's own time."""
    began = [(task.claimed_at, 1) for task in tasks if task.claimed_at is not None]
    ended = [(task.finished_at, -1) for task in tasks if task.finished_at is not None]
    running = accumulate(step for _, step in sorted(began + ended))
    return max(running, default=0)


def _dead_letter(task: Task) -> DeadLetter:
    return DeadLetter(task.id, task.name, task.failures, str((task.last_error or {}).get("message")))


def _problems(records: list[Task], submitted: Submitted) -> list[str]:
    """What is not as promised."""
    by_id = {task.id: task for task in records}
    problems = []
    for label, task_id in submitted.followed.items():
        wanted = TaskStatus.FAILED if label == "poison" else TaskStatus.COMPLETED
        if by_id[task_id].status is not wanted:
            problems.append(f"{label} is {by_id[task_id].status.value}, not {wanted.value}")
    if len(records) != submitted.distinct:
        problems.append(f"there are {len(records)} tasks, not {submitted.distinct}")
    if by_id[submitted.followed["flaky"]].failures != 2:
        problems.append("flaky did not fail twice before it healed")
    if sum(handle.created for handle in submitted.charges) != 1:
        problems.append("one idempotency key made more than one task")
    return problems


def _put_summary(summary: Summary, kept_url: str | None) -> None:
    put = output.put_fields
    output.put("")
    counts = ", ".join(f"{status} {number:,}" for status, number in summary.counts.items() if number)
    rate = summary.burst["tasks_per_s"]
    put(
        [
            ("tasks", counts),
            ("retries", f"{summary.retries}, each after its backoff"),
            *(("dead letter", f"{dead.id}  {dead.name}: {dead.error}") for dead in summary.dead_letters),
            (
                "duplicates",
                "{submitted} submits with one idempotency key made {created} task".format(**summary.duplicates),
            ),
            ("workflow", "{tasks} tasks {status}: {result}".format(**summary.workflow)),
            ("limit", "{tasks} tasks, {most_at_once} at once where {max_running} may".format(**summary.limit)),
            ("dataset", "{name} version {version}: {rows} rows, each page once".format(**summary.dataset)),
            ("burst", f"{BURST:,} tasks, {rate:,} per second" if rate else "not finished"),
            ("time", f"{summary.seconds:.1f} s"),
        ]
    )
    for problem in summary.problems:
        output.say(f"problem: {problem}")
    output.put("")
    output.put("try next:")
    for command in _next_commands(summary, kept_url):
        output.put(f"  {output.safe(command, 1000)}")


def _next_commands(summary: Summary, kept_url: str | None) -> list[str]:
    if kept_url is None:
        return ["holdfast demo --keep        # then look around in its file", "holdfast --help"]
    dead = summary.dead_letters[0].id if summary.dead_letters else "ID"
    return [
        f"holdfast --url {kept_url} tasks list --limit 10",
        f"holdfast --url {kept_url} tasks why {dead}",
        f"holdfast --url {kept_url} runs show {summary.workflow['run']}",
        f"holdfast --url {kept_url} dlq requeue {dead}",
    ]
