"""`holdfast workers`: who is working. The command that works is in worker.py."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.cli import output
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Command, Session
from holdfast.cli.output import Cell, Styled
from holdfast.cli.why import fresh
from holdfast.model.query import WorkerInfo


@click.command(cls=Command, examples=["holdfast workers", "holdfast workers --json"])
@click.pass_obj
def workers(session: Session) -> None:
    """List the workers of this store: where they run, what they listen to, how busy they are."""
    found, now = session.read(lambda app: app.workers.alist())
    headers = ("WORKER", "STATE", "PID", "SLOTS", "STARTED", "SEEN", "VERSION", "QUEUES")
    nothing = "no workers; start one: holdfast --app MODULE:ATTRIBUTE worker"
    put_listing(session, found, headers, lambda worker: _row(worker, now), nothing=nothing)


def _row(worker: WorkerInfo, now: datetime) -> list[Cell]:
    state = "alive" if fresh(worker, now) else "stale"
    return [
        worker.id,
        Styled(state, state),
        str(worker.pid),
        f"{worker.running}/{worker.concurrency}",
        output.when(worker.started_at, now),
        output.when(worker.seen_at, now),
        worker.version,
        "all" if worker.queues is None else ", ".join(worker.queues),
    ]
