"""`holdfast worker`: runs a worker in this process, or a supervisor with several (supervisor.py).

Exit codes: 0 after an orderly end (also where the grace time ran out: the rest was given back), 1 when it was aborted
and gave work back, 1 when every slot was stuck.
"""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli import logs, output
from holdfast.cli.countdown import Countdown
from holdfast.cli.options import Command, Session, duration
from holdfast.cli.supervisor import Plan, supervise
from holdfast.events.facts import Told, WorkerStarted, WorkerStopped
from holdfast.runtime import own_process
from holdfast.runtime.worker import Worker
from holdfast.version import __version__

NO_APP = (
    "a worker needs the app that declares the tasks: holdfast worker --app MODULE:ATTRIBUTE, "
    "for example --app tasks:app, or set HOLDFAST_APP"
)
NAMES_SHOWN = 8
LEASH_SECONDS = 15.0
"""After its supervisor is gone a worker has its grace time and this to end in order."""


def _split(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    names = [name.strip() for part in given for name in part.split(",") if name.strip()]
    if given and not names:
        raise click.BadParameter("name at least one queue, as in --queues mail,default")
    return names or None


@click.command(
    cls=Command,
    examples=[
        "holdfast worker --app tasks:app",
        "holdfast --app tasks:app worker --queues mail,default --concurrency 50",
        "holdfast --app tasks:app worker --processes 4 --log-format json",
        "holdfast --app tasks:app worker --wakeup sqs://wake-ups",
    ],
)
@click.option("--queues", multiple=True, callback=_split, metavar="A,B", help="Only these queues; default all.")
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Slots per process."
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes to run.")
@click.option("--lease", type=duration, help="Length of a lease; default 60 s.")
@click.option(
    "--poll-interval", type=duration, default="0.8", show_default=True, help="Look for work at least so often."
)
@click.option(
    "--wakeup", metavar="URL", help="Be woken by sqs://queue-name or nats://host:port/subject.prefix as well."
)
@click.option("--grace", type=duration, default="30", show_default=True, help="Time to finish in when stopping.")
@click.option("--worker-id", help="Its name; default host, pid and a nonce.")
@click.option("--until-idle", is_flag=True, help="End when nothing is claimable and nothing runs.")
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="console", show_default=True)
@click.option("--leash", type=int, hidden=True, help="A descriptor whose end means that the supervisor is gone.")
@click.pass_obj
def worker(
    session: Session, /, processes: int, log_level: str, log_format: str, leash: int | None, **options: Any
) -> int:
    """Run the tasks of an app until stopped.

    SIGTERM or Ctrl-C lets what runs finish within the grace time; a second one aborts and gives the rest back.
    """
    if session.chosen_app_path is None:
        raise click.UsageError(NO_APP, click.get_current_context())
    logs.configure(log_level, log_format)
    made = _made(session.app, options)  # what is wrong with the app or an option is said here, once
    label = session.run(_reached)
    talk = log_format == "console"  # lines of JSON are for programs: no talk beside them
    if processes > 1:
        if talk:
            _say_banner(made, label, f"{processes} processes, ")
        fixed = ("--log-level", log_level, "--log-format", log_format)
        plan = Plan(_child_arguments(session, options, fixed), processes, options["worker_id"], options["until_idle"])
        return supervise(plan)
    return _work(made, until_idle=options["until_idle"], leash=leash, talk=talk)


async def _reached(app: Holdfast) -> str:
    """The store's label. One that is not there at the start is an error; later it would be an outage, and survived."""
    await app.client.store.now()
    return app.client.store.label


def _made(app: Holdfast, options: dict[str, Any]) -> Worker:
    if options["wakeup"] is not None:
        app.wake_by(options["wakeup"])
    own = ("until_idle", "wakeup")
    return app.worker(**{name: value for name, value in options.items() if value is not None and name not in own})


def _child_arguments(session: Session, options: dict[str, Any], fixed: tuple[str, ...]) -> list[str]:
    """The same worker once more, for another process; its name and its leash are the supervisor's to add."""
    arguments = ["worker", "--app", str(session.chosen_app_path), *fixed]
    if session.url is not None:
        arguments += ["--url", session.url]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if name == "until_idle" and value:
            arguments.append(flag)
        elif name == "queues" and value:
            arguments += [flag, ",".join(value)]
        elif isinstance(value, timedelta):
            arguments += [flag, str(value.total_seconds())]
        elif name in ("concurrency", "wakeup") and value is not None:
            arguments += [flag, str(value)]
    return arguments


def _work(made: Worker, *, until_idle: bool, leash: int | None, talk: bool) -> int:
    own_process.tune()
    countdown = Countdown(in_place=leash is None)
    end = _End(made, banner=talk and leash is None)
    made.bus.subscribe(end)
    made.countdown = countdown if talk else None
    made.give_up = _give_up
    made.loop_factory = own_process.loop_factory()
    if leash is not None:
        _watch_leash(leash, made.settings.grace_seconds + LEASH_SECONDS)
    try:
        made.run(until_idle=until_idle)
    finally:
        countdown.close()
    return 1 if end.aborted and end.released else 0


class _End:
    """Listens for how the worker began and ended."""

    def __init__(self, made: Worker, *, banner: bool) -> None:
        self._made = made
        self._banner = banner
        self.aborted = False
        self.released = 0

    def __call__(self, told: Told) -> None:
        if isinstance(told, WorkerStarted) and self._banner:
            _say_banner(self._made, told.store)
        elif isinstance(told, WorkerStopped):
            self.aborted = self._made.abort_asked
            self.released = told.released


def _say_banner(made: Worker, store: str, processes: str = "") -> None:
    settings = made.settings
    names = sorted(definition.name for definition in made.registry)
    queues = "all queues" if settings.queues is None else f"queues {', '.join(settings.queues)}"
    output.say(
        f"holdfast {__version__} on {store}: {processes}{queues}, {settings.concurrency} slots, pid {os.getpid()}"
    )
    shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
    output.say(f"{output.many(len(names), 'task')} found{': ' if names else ''}{shown}")


def _give_up() -> None:
    """The loop is blocked for good and cannot end the process by itself."""
    output.say("error: every slot is stuck and the event loop is blocked; ending the process")
    os._exit(1)


def _watch_leash(leash: int, patience_seconds: float) -> None:
    """End in order when the supervisor is gone, however it went: then the pipe that it holds has ended."""

    def wait() -> None:
        while os.read(leash, 1):
            continue
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(patience_seconds)
        os._exit(1)

    threading.Thread(target=wait, name="holdfast-leash", daemon=True).start()
