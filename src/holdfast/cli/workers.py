"""`holdfast workers`: who is working. The command that works is in worker.py."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.options import Command, Session
from holdfast.cli.output import Cell, Styled
from holdfast.cli.why import fresh
from holdfast.model.query import WorkerInfo


@click.command(cls=Command, examples=["holdfast workers", "holdfast workers --json"])
@click.pass_obj
def workers(session: Session) -> None:
    """List the workers of this store: where they run, what they listen to, how busy they are."""

    async def read(app: Holdfast) -> tuple[list[WorkerInfo], datetime]:
        return await app.workers.alist(), await app.client.store.now()

    found, now = session.run(read)
    if session.json:
        for worker in found:
            output.put_json(worker)
    elif found:
        headers = ("WORKER", "STATE", "PID", "SLOTS", "STARTED", "SEEN", "VERSION", "QUEUES")
        output.put_table(headers, (_row(worker, now) for worker in found))
    else:
        output.say("no workers; start one: holdfast --app MODULE:ATTRIBUTE worker")


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
