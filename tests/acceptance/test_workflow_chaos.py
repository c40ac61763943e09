"""Random workflows, worked off by processes that are killed with -9 again and again, while somebody cancels, requeues,
pauses and changes limits. Then nothing more happens to them, and what is left has to agree with itself
(workflow_laws.py); then everything is requeued, and every task completes once.

What is drawn comes from a seed; who is killed when does not, and need not: the laws hold for every history.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import pytest

from holdfast import Fixed, Holdfast, ids
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.task import NewTask
from tests import postgres_server
from tests.acceptance.chaos_worker import WORK
from tests.acceptance.processes import killed_at_the_end, start
from tests.acceptance.workflow_laws import Books, PostgresBooks, SqliteBooks, check_at_rest, every_task
from tests.runtime.support import wait_until
from tests.runtime.workflow_support import node, submit

WORKERS = 4
MEDDLERS = 3
QUEUES = ("a", "b", "c")
KEYS = (None, None, "x", "y")
LIVE = ("waiting", "queued", "running")
ROUNDS = 10
"""Of requeueing, until everything is completed: one that is canceled keeps those after it from being requeued."""


class Drawing:
    """Workflows at random."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def workflow(self) -> list[NewTask]:
        return (
            self.chord(self._rng.randint(70, 200)) if self._rng.random() < 0.1 else self.graph(self._rng.randint(5, 40))
        )

    def graph(self, size: int) -> list[NewTask]:
        run_id = ids.task_id()
        tasks: list[NewTask] = []
        for _ in range(size):
            most = min(len(tasks), self._rng.choice((0, 1, 1, 2, 3, 5)))
            near = tasks[-8:] if self._rng.random() < 0.7 else tasks
            tasks.append(self._node(run_id, self._rng.sample(near, min(most, len(near)))))
        return tasks

    def chord(self, size: int) -> list[NewTask]:
        """After one task, so that its end concerns very many; its members are counted in buckets."""
        run_id = ids.task_id()
        first = self._node(run_id, [], trouble=0.1)
        members = [self._node(run_id, [first], trouble=0.1) for _ in range(size)]
        last = self._node(run_id, members)
        return [first, *members, last, *(self._node(run_id, [last]) for _ in range(3))]

    def _node(self, run_id: str, after: list[NewTask], *, trouble: float = 0.3) -> NewTask:
        return node(
            WORK,
            trouble,
            inputs=[len(after)],
            after=after,
            run_id=run_id,
            queue=self._rng.choice(QUEUES),
            concurrency_key=self._rng.choice(KEYS),
            priority=self._rng.choice((0, 0, 1)),
            delay_seconds=self._rng.choice((0.0, 0.0, 0.0, 0.05)),
            max_attempts=self._rng.choice((1, 2, 4)),
            backoff=Fixed(0.02),
            on_parent_failure=self._rng.choice(("cancel", "cancel", "cancel", "run")),
            fail_fast=self._rng.choice((None, None, None, None, "f", "g")),
        )


class Crew:
    """Worker processes, of which one can be killed at any moment: another takes its place."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self._command = ["-m", "tests.acceptance.chaos_worker", url, str(folder / "calm")]
        self._log = folder / "log"
        self._stack = stack
        self._workers: list[subprocess.Popen[bytes]] = []
        for _ in range(WORKERS):
            self.hire()

    def hire(self) -> None:
        self._workers.append(self._stack.enter_context(killed_at_the_end(start(self._command, log=self._log))))

    def kill_one(self, rng: random.Random) -> None:
        victim = self._workers.pop(rng.randrange(len(self._workers)))
        victim.kill()
        victim.wait()
        self.hire()


class Meddler:
    """Somebody who may do everything and knows nothing."""

    def __init__(self, app: Holdfast, crew: Crew | None, rng: random.Random) -> None:
        self._app = app
        self._rng = rng
        self._drawing = Drawing(rng)
        self._task_ids: list[str] = []
        self._run_ids: list[str] = []
        self._acts: list[Callable[[], object]] = [
            self._cancel_some,
            self._cancel_run,
            self._retry_some,
            self._release_some,
            lambda: app.dlq.requeue_all(),
            lambda: app.queues.limit(self._queue(), max_running=rng.choice((1, 3, None))),
            lambda: app.queues.limit(self._queue(), max_running_per_key=rng.choice((1, 2, None))),
            lambda: app.queues.limit(self._queue(), rate=rng.choice(("50/s", "200/s", None)), burst=rng.choice((1, 9))),
            lambda: app.queues.limit("*", max_running=rng.choice((6, 20, None))),
            lambda: app.queues.pause(self._queue()),
            lambda: app.queues.resume(self._queue()),
        ]
        if crew is not None:
            self._acts += 4 * [lambda: crew.kill_one(rng)]

    def wait(self) -> None:
        """Until some more are completed; where all is held by limits and pauses, not for long."""
        wanted = self._app.tasks.count()["completed"] + self._rng.randint(1, 20)
        with suppress(AssertionError):
            wait_until(lambda: self._app.tasks.count()["completed"] >= wanted, seconds=0.2)

    def supply(self, backlog: int) -> None:
        counts = self._app.tasks.count()
        while sum(counts[status] for status in LIVE) < backlog:
            tasks = self._drawing.workflow()
            submit(self._app, *tasks)
            self._task_ids += [task.id for task in tasks]
            self._run_ids.append(str(tasks[0].run_id))
            counts = self._app.tasks.count()

    def act(self) -> None:
        self._rng.choice(self._acts)()

    def _queue(self) -> str:
        return self._rng.choice(QUEUES)

    def _cancel_run(self) -> None:
        if self._run_ids:
            self._app.runs.cancel(self._rng.choice(self._run_ids[-10:]))

    def _cancel_some(self) -> None:
        for task_id in self._rng.sample(self._task_ids[-500:], min(3, len(self._task_ids))):
            with refused():
                self._app.tasks.cancel(task_id)

    def _retry_some(self) -> None:
        for status in ("failed", "canceled"):
            found = self._app.tasks.list(status=status, limit=500)
            for task in self._rng.sample(found, min(5, len(found))):
                with refused():
                    self._app.tasks.retry(task.id)

    def _release_some(self) -> None:
        for task in self._app.tasks.list(status="running")[:3]:
            with refused():
                self._app.tasks.release(task.id)


@contextmanager
def refused() -> Iterator[None]:
    """Tasks move on meanwhile; that the store is away is no refusal."""
    try:
        yield
    except StoreUnavailable:
        raise
    except HoldfastError:
        pass


def set_free(app: Holdfast) -> None:
    for queue in ("*", *QUEUES):
        app.queues.limit(queue, max_running=None, rate=None, burst=None, max_running_per_key=None)
        if queue != "*":
            app.queues.resume(queue)


def until_at_rest(app: Holdfast, books: Books) -> None:
    def at_rest() -> bool:
        counts = app.tasks.count()
        return not any(counts[status] for status in LIVE) and books.left() == 0

    wait_until(at_rest, "everything to end", seconds=120)


def requeue_everything(app: Holdfast, books: Books) -> None:
    app.dlq.requeue_all()
    wait_until(lambda: books.left() == 0, "what is re-armed", seconds=60)
    for task in every_task(app):
        if task.status == "canceled":
            with refused():
                app.tasks.retry(task.id)


class Plan(NamedTuple):
    seconds: float
    seed: int
    backlog: int
    """As long as fewer tasks live, workflows are submitted."""


def try_out(url: str, books: Books, folder: Path, plan: Plan) -> None:
    with Holdfast(url) as app, ExitStack() as stack:
        meddle(url, Crew(url, folder, stack), plan)
        set_free(app)
        until_at_rest(app, books)
        check_at_rest(app, books)
        (folder / "calm").touch()
        heal(app, books)


def meddle(url: str, crew: Crew, plan: Plan) -> None:
    """Several at once, who know nothing of each other."""
    ends_at = monotonic() + plan.seconds

    def go_on(number: int) -> None:
        with Holdfast(url) as app:
            meddler = Meddler(app, crew if number == 0 else None, random.Random(f"{plan.seed} {number}"))
            while monotonic() < ends_at:
                meddler.wait()
                meddler.supply(plan.backlog)
                meddler.act()

    with ThreadPoolExecutor(MEDDLERS) as threads:
        list(threads.map(go_on, range(MEDDLERS)))


def heal(app: Holdfast, books: Books) -> None:
    """Requeue everything until everything is completed."""
    for _ in range(ROUNDS):
        requeue_everything(app, books)
        until_at_rest(app, books)
        broken = [task for task in check_at_rest(app, books) if task.status != "completed"]
        if not broken:
            return
    raise AssertionError(f"still not completed: {broken}")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Books]:
    if request.param == "sqlite":
        file = tmp_path / "tasks.db"
        return f"sqlite:///{file}", SqliteBooks(file)
    schema = postgres_server.fresh_schema()
    return f"{postgres_server.server().url}?schema={schema}", PostgresBooks(schema)


@pytest.mark.timeout(300)
def test_workflows_survive_kills_and_meddling(place: tuple[str, Books], tmp_path: Path) -> None:
    try_out(*place, tmp_path, Plan(seconds=4, seed=1, backlog=150))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 6))
def test_workflows_survive_kills_and_meddling_for_long(place: tuple[str, Books], tmp_path: Path, seed: int) -> None:
    try_out(*place, tmp_path, Plan(seconds=90, seed=seed, backlog=500))
