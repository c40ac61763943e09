"""What the tests of the worker share: a worker on a thread of its own, what it told, and bounded waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from holdfast import Handle, Holdfast, Task
from holdfast.events.facts import Told
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore

F = TypeVar("F")

PATIENCE_SECONDS = 20.0


def wait_until(condition: Callable[[], object], what: str = "", *, seconds: float = PATIENCE_SECONDS) -> None:
    """Poll until `condition()` is true; a test that waits longer has failed."""
    ends_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends_at:
            raise AssertionError(f"waited {seconds:g} s in vain{what and ': ' + what}")
        time.sleep(0.005)


class Crew:
    """One worker that runs on its own thread while the block lasts. Leaving the block stops it and waits for it."""

    def __init__(self, app: Holdfast, **options: Any) -> None:
        self.worker = app.worker(**{"poll_interval": 0.05, "grace": 5, **options})
        self.told: list[Told] = []
        self.raised: BaseException | None = None
        self.worker.bus.subscribe(self.told.append)
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.raised = error

    def __enter__(self) -> Crew:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.thread.is_alive():
            self.worker.stop()
        self.join()

    def join(self) -> None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive(), "the worker did not stop"

    def of(self, kind: type[F]) -> list[F]:
        """What was told of this kind, so far."""
        return [told for told in list(self.told) if isinstance(told, kind)]

    def wait_for(self, kind: type[F]) -> F:
        wait_until(lambda: self.of(kind), f"a {kind.__name__}")
        return self.of(kind)[0]


def work_off(app: Holdfast, **options: Any) -> list[Told]:
    """Run a worker here until nothing is left that is due; what it told."""
    worker = app.worker(**{"poll_interval": 0.05, **options})
    told: list[Told] = []
    worker.bus.subscribe(told.append)
    worker.run(until_idle=True)
    return told


def ended(handle: Handle[Any]) -> Task:
    wait_until(lambda: handle.task().status.terminal, f"the end of {handle}")
    return handle.task()


def code_of(task: Task) -> str | None:
    return None if task.last_error is None else task.last_error.get("code")


def kinds(handle: Handle[Any]) -> list[str]:
    return [event.kind for event in handle.events()]


def running_nowhere(app: Holdfast) -> bool:
    """No lease is left: no record is running and nobody is shown as its holder."""
    return app.tasks.count()["running"] == 0 and all(task.claimed_by is None for task in app.tasks.list(limit=10_000))


def memory_state(app: Holdfast) -> MemoryState:
    """The tables under a memory app, to let its store go away and come back."""
    store = app.connections.factory()
    assert isinstance(store, MemoryStore)
    return store._state
