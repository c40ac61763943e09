"""`holdfast migrate` and `holdfast doctor`: the store itself, and whether work gets done on it."""

from __future__ import annotations

import platform
import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Literal, Protocol, runtime_checkable

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.options import Command, Session
from holdfast.cli.schedules import overdue_since
from holdfast.cli.why import fresh
from holdfast.clock import SYSTEM_CLOCK, from_micros
from holdfast.errors import NotSupported, SchemaMismatch
from holdfast.model.limits import WHOLE_STORE, Limits
from holdfast.model.query import QueueInfo, WorkerInfo
from holdfast.model.schedule import Schedule
from holdfast.stores.protocol import Store
from holdfast.version import __version__

SKEW_SECONDS = 1.0


@click.command(
    cls=Command,
    examples=[
        "holdfast migrate",
        "holdfast migrate --check",
        "holdfast migrate --sql",
        "holdfast migrate --sql --from 0",
        "holdfast migrate --roles --url postgresql://owner@host/database",
    ],
)
@click.option("--check", is_flag=True, help="Change nothing; exit code 1 if a step is open.")
@click.option("--sql", is_flag=True, help="Change nothing; print what would be done, as SQL.")
@click.option("--from", "since", type=click.IntRange(min=0), help="With --sql: from this version on, asking no store.")
@click.option("--roles", is_flag=True, help="Print the SQL that gives producers, workers and viewers their rights.")
@click.pass_obj
def migrate(session: Session, check: bool, sql: bool, since: int | None, roles: bool) -> int:
    """Bring the store's schema up to date. Safe to run again, also from several places at once."""
    if check + sql + roles > 1:
        raise click.UsageError("give one of --check, --sql and --roles")
    if since is not None and not sql:
        raise click.UsageError("--from goes with --sql")
    if sql or roles:
        return _show(session, session.run(_roles_sql if roles else lambda app: _steps_sql(app, since)))
    steps = session.run(lambda app: app.client.store.migrate(dry_run=check))
    if session.json:
        output.put_json({"up_to_date": not (check and steps), "open" if check else "done": steps})
    else:
        for step in steps:
            output.put(output.safe(step))
        output.say(_summary(steps, check))
    return 1 if check and steps else 0


def _show(session: Session, text: str) -> int:
    if session.json:
        output.put_json({"sql": text})
    elif text:
        output.put(text.rstrip("\n"))
    return 0


def _summary(steps: list[str], check: bool) -> str:
    if not steps:
        return "the schema is up to date"
    return f"{output.many(len(steps), 'step')} {'open; run `holdfast migrate`' if check else 'done'}"


@runtime_checkable
class SqlStore(Protocol):
    """A store that can show its migrations as SQL."""

    async def migration_sql(self, since: int | None) -> str: ...


@runtime_checkable
class StoreWithRoles(Protocol):
    def roles_sql(self) -> str: ...


async def _steps_sql(app: Holdfast, since: int | None) -> str:
    """The statements of the open steps, where the store has any to show; else their names."""
    store = app.client.store
    if isinstance(store, SqlStore):
        return await store.migration_sql(since)
    return "".join(f"-- {step}\n" for step in await store.migrate(dry_run=True))


async def _roles_sql(app: Holdfast) -> str:
    store = app.client.store
    if isinstance(store, StoreWithRoles):
        return store.roles_sql()
    raise NotSupported(f"{store.label} has no roles; PostgreSQL has")


# Doctor

Mark = Literal["ok", "warn", "fail"]


_MARKS: dict[bool | None, Mark] = {True: "ok", None: "warn", False: "fail"}


class Finding(msgspec.Struct, frozen=True):
    check: str
    mark: Mark
    text: str


@click.command(
    cls=Command,
    examples=[
        "holdfast doctor",
        "holdfast doctor --url sqlite:///tasks.db --json",
        "holdfast doctor --repair --dry-run --url nats://host/holdfast",
    ],
)
@click.option("--repair", is_flag=True, help="Rebuild the store's indexes from its tasks, while others go on working.")
@click.option("--dry-run", is_flag=True, help="With --repair: change nothing; exit code 1 if something is wrong.")
@click.pass_obj
def doctor(session: Session, repair: bool, dry_run: bool) -> int:
    """Check the store, its clock, its workers and what waits, line by line.

    The exit code is 1 if a check fails; a warning does not fail.
    """
    if dry_run and not repair:
        raise click.UsageError("--dry-run goes with --repair")
    if repair:
        return _repair(session, dry_run=dry_run)

    async def collect(app: Holdfast) -> list[Finding]:
        return [finding async for finding in examine(app)]

    findings = session.run(collect)
    for finding in findings:
        if session.json:
            output.put_json(finding)
        else:
            mark = output.painted(f"{finding.mark:<4}", finding.mark, sys.stdout)
            output.put(f"{mark}  {output.safe(finding.check):<22}  {output.safe(finding.text, 1000)}")
    return 1 if any(finding.mark == "fail" for finding in findings) else 0


def _repair(session: Session, *, dry_run: bool) -> int:
    repairs = session.run(lambda app: app.client.store.repair(dry_run=dry_run, told=output.say))
    if session.json:
        output.put_json({"well": not (dry_run and repairs), "open" if dry_run else "done": repairs})
        return 1 if dry_run and repairs else 0
    for one in repairs:
        output.put(f"{output.safe(one.what):<8}  {output.safe(one.words, 1000)}")
    if not repairs:
        output.say("nothing to repair")
    elif dry_run:
        output.say("nothing was changed; run `holdfast doctor --repair`")
    return 1 if dry_run and repairs else 0


async def examine(app: Holdfast) -> AsyncIterator[Finding]:
    store = app.client.store
    yield Finding("versions", "ok", f"holdfast {__version__}, Python {platform.python_version()}, {platform.system()}")
    now = await store.now()
    yield Finding("store", "ok", f"{store.label} answers")
    for question, well, words in await store.check():
        yield Finding(question, _MARKS[well], words)
    skew = abs((from_micros(SYSTEM_CLOCK.micros()) - now).total_seconds())
    text = f"this machine and the store differ by {output.span(skew)}"
    yield Finding("clock", "ok" if skew < SKEW_SECONDS else "warn", text)
    async for finding in _work(store):
        yield finding


async def _work(store: Store) -> AsyncIterator[Finding]:
    now = await store.now()
    workers = await store.workers()
    alive = [worker for worker in workers if fresh(worker, now)]
    for worker in workers:
        if worker not in alive:
            text = f"{worker.id} was last seen {output.when(worker.seen_at, now)}; its work is taken back by itself"
            yield Finding("worker", "warn", text)
    yield Finding("workers", "ok" if alive else "warn", f"{len(alive)} alive")
    queues = await store.queues()
    for queue in queues:
        finding = _waiting(queue, alive, now)
        if finding is not None:
            yield finding
    whole = _whole(queues, now)
    if whole is not None:
        yield whole
    async for finding in _schedules(store, now):
        yield finding
    dead = sum(queue.counts.get("failed", 0) for queue in queues)
    hint = "; see `holdfast dlq list`" if dead else ""
    yield Finding("dead letters", "warn" if dead else "ok", f"{output.many(dead, 'dead letter')}{hint}")


async def _schedules(store: Store, now: datetime) -> AsyncIterator[Finding]:
    try:
        known = await store.schedules()
    except (NotSupported, SchemaMismatch) as missing:
        yield Finding("schedules", "warn", str(missing))
        return
    overdue = [finding for finding in (_overdue(schedule, now) for schedule in known) if finding is not None]
    for finding in overdue:
        yield finding
    if known and not overdue:
        yield Finding("schedules", "ok", f"{output.many(len(known), 'schedule')}, none overdue")


def _overdue(schedule: Schedule, now: datetime) -> Finding | None:
    """A schedule that nobody fires."""
    try:
        since = overdue_since(schedule, now)
    except (LookupError, ValueError, OSError) as unknown:
        return Finding("schedule", "warn", f"{schedule.name!r} cannot be read here: {unknown}")
    if since is None:
        return None
    who = "no worker runs" if schedule.declared_at is None else "no worker runs whose code has it"
    return Finding("schedule", "warn", f"{schedule.name!r} was due {output.when(since, now)}; {who}")


def _waiting(queue: QueueInfo, alive: list[WorkerInfo], now: datetime) -> Finding | None:
    """A queue whose tasks nobody will take."""
    queued = queue.counts.get("queued", 0)
    if not queued:
        return None
    waiting = f"{output.many(queued, 'queued task')} in {queue.name!r}"
    if queue.paused:
        return Finding("queue", "warn", f"{waiting}, and it is paused")
    if not any(worker.queues is None or queue.name in worker.queues for worker in alive):
        return Finding("queue", "warn", f"{waiting}, and no worker listens to it")
    held = _held(queue.limits, queue.counts.get("running", 0), queue.next_start_at, now)
    return Finding("queue", "ok", f"{waiting}{held}")


def _whole(queues: list[QueueInfo], now: datetime) -> Finding | None:
    """Limits of the whole store that hold everything up."""
    said = next((queue for queue in queues if queue.name == WHOLE_STORE), None)
    running = sum(queue.counts.get("running", 0) for queue in queues)
    held = "" if said is None else _held(said.limits, running, said.next_start_at, now)
    return Finding("limits", "ok", f"of the whole store ('*'){held}") if held else None


def _held(limits: Limits, running: int, next_start_at: datetime | None, now: datetime) -> str:
    if limits.max_running is not None and running >= limits.max_running:
        return f", held by max_running: {running:,} of {limits.max_running:,} run"
    if next_start_at is not None:
        return f", held by its rate: the next may start {output.when(next_start_at, now)}"
    return ""
