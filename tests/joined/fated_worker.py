"""A worker process whose handler stops or kills it in the middle of its transaction.

`python -m tests.joined.fated_worker '{"url": …}'`. The handler adds its attempt's number to the table `orders` and
completes in the same transaction; on the way it notes in a file where it is, and what it was refused.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from holdfast import Context, Fixed, Holdfast
from holdfast.errors import LeaseLost
from tests.acceptance.crash_worker import append


class Orders(msgspec.Struct, kw_only=True):
    url: str
    options: dict[str, Any] = {}
    table: str
    ledger: str
    at: str
    """Where its fate awaits it: `written` or `completed`."""
    fate: str
    """`stop` or `die`."""
    go: str = ""
    """A file: whoever is stopped stops again until it exists."""
    way: str = "transaction"
    """`transaction`, or `complete_in` with a connection of the handler's own (SQLite)."""
    lease: float = 60.0


class Fate:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders

    def pass_by(self, ctx: Context, point: str) -> None:
        append(self._orders.ledger, point, ctx.attempt)
        if point != self._orders.at or ctx.attempt > 1:
            return
        if self._orders.fate == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        while not Path(self._orders.go).exists():
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.01)

    def refused(self, ctx: Context) -> None:
        append(self._orders.ledger, "refused", ctx.attempt)


def declare(app: Holdfast, orders: Orders) -> None:
    fate, insert = Fate(orders), f"insert into {orders.table} values (1)"

    async def in_transaction(ctx: Context) -> None:
        try:
            async with ctx.transaction() as tx:
                await tx.connection.execute(insert)
                fate.pass_by(ctx, "written")
                await tx.complete(ctx.attempt)
                fate.pass_by(ctx, "completed")
        except (LeaseLost, asyncio.CancelledError):  # the latter where the lease keeper hears of it first
            fate.refused(ctx)
            raise

    def in_own_connection(ctx: Context) -> None:
        file = Path(orders.url.removeprefix("sqlite:///"))
        with closing(sqlite3.connect(file, isolation_level=None, timeout=20)) as connection:
            connection.execute("BEGIN")
            fate.pass_by(ctx, "written")  # not yet: a write would keep others from taking the task over
            connection.execute(insert)
            try:
                ctx.complete_in(connection, ctx.attempt)
            except LeaseLost:
                fate.refused(ctx)
                raise
            connection.execute("COMMIT")

    handler: Any = in_transaction if orders.way == "transaction" else in_own_connection
    app.task(name="order", takes_context=True, backoff=Fixed(0))(handler)


def main(orders: Orders) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    app = Holdfast(orders.url, **orders.options)
    declare(app, orders)
    app.worker(lease=orders.lease, poll_interval=0.1, grace=5).run()


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Orders))
