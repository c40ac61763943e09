"""Celery on Redis: its fastest pool for no-ops, one task at a time in each process, acknowledged before it runs."""

from __future__ import annotations

import os

from celery import Celery

from bench.rivals import roles

app = Celery("bench", broker=roles.URL)
app.conf.update(task_default_queue="bench", worker_prefetch_multiplier=4, broker_connection_retry_on_startup=True)


@app.task(name="noop")
def noop(_number: int) -> None:
    roles.count()


def fill(tasks: int) -> None:
    for number in range(tasks):
        noop.delay(number)


def work() -> None:
    quiet = ["--without-gossip", "--without-mingle", "--loglevel", "WARNING"]
    app.worker_main(["worker", "--pool", "solo", "--hostname", f"bench-{os.getpid()}@here", *quiet])


if __name__ == "__main__":
    roles.play(setup=lambda: None, fill=fill, work=work)
