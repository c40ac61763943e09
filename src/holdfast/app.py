"""The composition root: settings in, wired objects out."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from holdfast.calls import Call, Options, Template, Then, template_by_name, template_of
from holdfast.client import Client
from holdfast.connections import Connections
from holdfast.datasets import DatasetsDesk
from holdfast.declare import ContextDecorator, Decorator, TaskOptions, definition_of
from holdfast.declared import ContextTask, DeclaredTask, Submitter, aenqueue_all, enqueue_all
from holdfast.desks import (
    DeadLetterDesk,
    QueuesDesk,
    RunsDesk,
    SchedulesDesk,
    TasksDesk,
    TimingOptions,
    WorkersDesk,
    timing_given,
)
from holdfast.errors import InvalidTask
from holdfast.handle import Handle
from holdfast.model.event import Event
from holdfast.model.query import Retention
from holdfast.policy.admission import PAYLOAD_BYTES, checked_int, checked_name, checked_worker_id
from holdfast.policy.firing import new_schedule
from holdfast.policy.sinks import subscriber_sink, webhook_sink
from holdfast.registry import Registry
from holdfast.settings import Defaults, Span, default_url, seconds
from holdfast.sink_desks import OutboxDesk, SinksDesk
from holdfast.stores.open import store_factory
from holdfast.stores.protocol import Store, StoreFactory
from holdfast.transports.wakeup_sinks import wakeup_sink
from holdfast.workflows.run import Run

if TYPE_CHECKING:
    from holdfast.runtime.worker import Worker
    from holdfast.testing.harness import Testing

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Callable[[Event], Any])
D = TypeVar("D", bound=DeclaredTask[..., Any, Any])

log = logging.getLogger("holdfast")


class Holdfast:
    """A queue: declare tasks on it, submit them, work on them, look at them.

    `Holdfast("sqlite:///tasks.db")`, `Holdfast("memory://name")`; without a URL it takes HOLDFAST_URL, else
    `sqlite:///holdfast.db`. Nothing is opened before it is needed. Safe to use from threads, from async code and
    after a fork.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        retention: Retention | None = None,
        wakeup: str | None = None,
        max_payload_bytes: int = PAYLOAD_BYTES,
        defaults: Defaults | None = None,
        **store_options: Any,
    ) -> None:
        source = None
        if url is None:
            url, source = default_url()
        self.url = url
        self.retention = retention or Retention()
        self.registry = Registry(defaults or Defaults.from_environment())
        self._store_options = store_options
        self.connections = Connections(_telling(store_factory(url, **store_options), url, source))
        self.client = Client(self.connections, sinks=lambda: self.registry.sinks)
        self.tasks = TasksDesk(self.client)
        self.dlq = DeadLetterDesk(self.client)
        self.queues = QueuesDesk(self.client)
        self.runs = RunsDesk(self.client)
        self.workers = WorkersDesk(self.client)
        self.schedules = SchedulesDesk(self.client)
        self.datasets = DatasetsDesk(self.client)
        self.sinks = SinksDesk(self.client)
        self.outbox = OutboxDesk(self.client)
        self.outside = True
        """False while under test: then nothing leaves the process."""
        self._payload_bytes = max_payload_bytes
        if wakeup is not None:
            self.wake_by(wakeup)

    def point_at(self, url: str) -> None:
        """Use the store at another URL from now on; declarations stay. What `--url` beside `--app` does.

        Options of the store go along where it is of the same kind.
        """
        same_kind = url.partition(":")[0] == self.url.partition(":")[0]
        self.connections.exchange(store_factory(url, **(self._store_options if same_kind else {})))
        self.url = url

    def wake_by(self, url: str) -> None:
        """Announce tasks that are due at `sqs://queue-name` or `nats://host:port/subject.prefix`, and let the workers
        made from now on listen there. What `wakeup=…` and `--wakeup` do.
        """
        self.registry.wakeup = wakeup_sink(url)

    @property
    def payload_bytes(self) -> int:
        """How large a payload may be."""
        return self._payload_bytes

    def __repr__(self) -> str:
        return f"<Holdfast {_without_password(self.url)}, {len(self.registry)} tasks>"

    # Declare

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> DeclaredTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> DeclaredTask[P, R, R]: ...
    @overload
    def task(self, *, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> ContextDecorator: ...
    @overload
    def task(self, *, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]) -> Decorator: ...
    def task(self, function: Any = None, /, *, takes_context: bool = False, **options: Any) -> Any:  # type: ignore[misc]
        """Declare a task: `@app.task`, or `@app.task(queue="mail", timeout=30, max_attempts=5)`.

        Options: name, queue, priority, max_attempts, timeout, lease, backoff, retry_on, give_up_on, run_in, and
        takes_context=True for a function whose first parameter is the context.
        """

        def declare(function: Callable[..., Any]) -> DeclaredTask[Any, Any, Any]:
            defaults = self.registry.defaults
            given = cast(TaskOptions, options)
            definition = definition_of(function, given, takes_context=takes_context, defaults=defaults)
            self.registry.add(definition)
            template = template_of(definition, self.client, payload_bytes=self._payload_bytes)
            made = ContextTask if takes_context else DeclaredTask
            return made(self.client, template, function, definition)

        return declare if function is None else declare(function)

    def schedule(
        self,
        cron: str | None = None,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[TimingOptions],
    ) -> Callable[[D], D]:
        """Above `@app.task()`: submit the task again and again, by a cron expression or at an interval.

        `@app.schedule("0 3 * * *", timezone="Europe/Zurich")`, `@app.schedule("@daily")`,
        `@app.schedule(every=timedelta(minutes=5))`. `missed` says what becomes of firings while no worker ran: `skip`,
        `once` (one task for all of them) or `all` (the latest `missed_most`). `args` and `kwargs` are the task's.
        """
        timing = timing_given(cron, **options)

        def declare(task: D) -> D:
            if not isinstance(task, DeclaredTask):
                raise InvalidTask("@app.schedule stands above @app.task, as it schedules what that declares")
            call = task.s(*args, **(kwargs or {}))
            self.registry.add_schedule(new_schedule(name or call.name, timing, call.new_task(""), declared=True))
            return task

        return declare

    def webhook(
        self,
        url: str,
        *,
        secret: str | None = None,
        kinds: Sequence[str] | None = None,
        queues: Sequence[str] | None = None,
        name: str | None = None,
        private: bool = False,
    ) -> None:
        """POST events to this URL, each at least once, in order per task, signed with `secret` (holdfast.webhooks).

        `kinds` and `queues` choose which (None: all). It is declared by the first submit of this process and by every
        worker that starts, is told of what happens from then on, and stays until `app.sinks.delete(name)`; its name is
        the URL without its query, if none is given. `private=True` allows an address within a private network.
        """
        self.registry.add_sink(webhook_sink(url, secret=secret, kinds=kinds, queues=queues, name=name, private=private))

    def subscribe(self, *kinds: str, queues: Sequence[str] | None = None, name: str | None = None) -> Callable[[S], S]:
        """Above a function that takes an event, plain or async: it is told those of these kinds, each at least once, in
        order per task, by the worker of a process that has it. An exception is a failed try.
        """

        def declare(function: S) -> S:
            own = name or f"{function.__module__}.{function.__qualname__}"
            self.registry.add_sink(subscriber_sink(own, kinds, queues), function)
            return function

        if kinds and callable(kinds[0]):
            raise InvalidTask('@app.subscribe takes kinds of events: @app.subscribe("task.failed"), or () for all')
        return declare

    # Submit

    def enqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Handle[Any]]:
        """Submit many calls in one atomic step; with a `connection`, as part of the transaction that is open on it."""
        return enqueue_all(self.client, list(calls), connection, plain="enqueue_many")

    async def aenqueue_many(self, calls: Iterable[Call[Any]], *, connection: Any = None) -> list[Handle[Any]]:
        return await aenqueue_all(self.client, list(calls), connection)

    def using(self, **options: Unpack[Options]) -> NamedSubmitter:
        """Options for tasks submitted by name."""
        return NamedSubmitter(self, options)

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Submit a task by name, also where its handler's code is not at hand."""
        return self.using().enqueue(name, *args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        return await self.using().aenqueue(name, *args, **kwargs)

    def s(self, name: str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        return self.using().s(name, *args, **kwargs)

    def then(self, name: str, /, *args: Any, **kwargs: Any) -> Then[Any, Any]:
        return self.using().then(name, *args, **kwargs)

    def template(self, name: str) -> Template:
        """Where the handler is registered here, its policy travels with the task; else the defaults do."""
        definition = self.registry.get(name)
        if definition is not None:
            return template_of(definition, self.client, payload_bytes=self._payload_bytes)
        return template_by_name(name, self.registry.defaults, self.client, payload_bytes=self._payload_bytes)

    def handle(self, task_id: str) -> Handle[Any]:
        """A handle on a task submitted earlier; whether it exists shows when it is used."""
        return Handle(self.client, task_id, created=False)

    def run_handle(self, run_id: str) -> Run[Any]:
        """The same for a run."""
        return Run(self.client, run_id, created=False)

    # Work

    def worker(
        self,
        queues: Sequence[str] | None = None,
        concurrency: int = 100,
        *,
        lease: Span | None = None,
        poll_interval: Span = 0.8,
        worker_id: str | None = None,
        grace: Span = 30.0,
    ) -> Worker:
        """A worker for these queues (None: all). `.run()` blocks; `await .arun()` in async code."""
        from holdfast.events import log as log_subscriber
        from holdfast.events.bus import Bus
        from holdfast.runtime.shift import WorkerSettings
        from holdfast.runtime.worker import Worker, new_worker_id

        own_lease = self.registry.defaults.lease_seconds if lease is None else lease
        settings = WorkerSettings(
            worker_id=new_worker_id() if worker_id is None else checked_worker_id(worker_id),
            queues=None if queues is None else tuple(checked_name(queue, what="a queue") for queue in queues),
            concurrency=checked_int(concurrency, 1, 10_000, what="concurrency"),
            lease_seconds=seconds(own_lease, what="lease", above_zero=True),
            poll_seconds=seconds(poll_interval, what="poll_interval", above_zero=True),
            grace_seconds=seconds(grace, what="grace"),
            retention=self.retention,
        )
        open_store = self.connections.factory
        return Worker(
            settings,
            registry=self.registry,
            open_store=open_store,
            bus=Bus(log_subscriber.write),
            outside=self.outside,
        )

    def testing(self) -> Testing:
        """For tests: a fresh memory store and a virtual clock while the block lasts, through the real path."""
        from holdfast.testing.harness import Testing

        return Testing(self)

    # Close

    def close(self) -> None:
        """Release every connection; the next use opens new ones."""
        self.client.plainly(self.client.close, plain="close")
        self.client.shut()

    async def aclose(self) -> None:
        await self.client.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Holdfast:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class NamedSubmitter:
    """Submits tasks by name with fixed options."""

    def __init__(self, app: Holdfast, options: Options) -> None:
        self._app = app
        self._options = options

    def _submitter(self, name: str) -> Submitter[..., Any]:
        return Submitter(self._app.client, self._app.template(name)).using(**self._options)

    def s(self, name: str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        return self._submitter(name).s(*args, **kwargs)

    def then(self, name: str, /, *args: Any, **kwargs: Any) -> Then[Any, Any]:
        return self._submitter(name).then(*args, **kwargs)

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        return self._submitter(name).enqueue(*args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        return await self._submitter(name).aenqueue(*args, **kwargs)

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        """Calls that are made already; of these options only `connection` is left to give them."""
        return self._app.enqueue_many(calls, connection=self._only_connection())

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Handle[Any]]:
        return await self._app.aenqueue_many(calls, connection=self._only_connection())

    def _only_connection(self) -> Any:
        others = [name for name in self._options if name != "connection"]
        if others:
            raise TypeError(f"enqueue_many takes calls with their own options; give {others[0]!r} to each of them")
        return self._options.get("connection")


def _telling(factory: StoreFactory, url: str, source: str | None) -> StoreFactory:
    """Says, when it is used, which store was chosen where the code names none: by then `--url` has had its word."""
    if source is None:
        return factory
    told = False

    def open_store() -> Store:
        nonlocal told
        if not told:
            told = True
            log.info("store.chosen url=%s from=%r", _without_password(url), source)
        return factory()

    return open_store


def _without_password(url: str) -> str:
    """For logs: what stands between the scheme and an @ is nobody's business."""
    scheme, separator, rest = url.partition("://")
    rest = re.sub(r"(?<=password=)[^&]*", "…", rest)
    return f"{scheme}{separator}…@{rest.rsplit('@', 1)[1]}" if "@" in rest else f"{scheme}{separator}{rest}"
