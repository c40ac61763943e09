"""A worker that writes datasets, dies or stops at a named point: `python -m tests.acceptance.outputs_worker '{…}'`."""

from __future__ import annotations

import sys

import msgspec

from holdfast import Context, Fixed, Holdfast
from tests.acceptance.crash_worker import Fate, Orders, run_worker


def declare(app: Holdfast, fate: Fate) -> None:
    @app.task(name="append", takes_context=True, max_attempts=0, backoff=Fixed(0))
    def append(ctx: Context, keys: list[str]) -> int:
        fate.note(ctx.id, ctx.attempt, ctx.lease_token, 0)
        ctx.output("orders", {key: [ctx.id, ctx.attempt] for key in keys})
        ctx.output("last", {"attempt": ctx.attempt}, mode="replace")
        fate.pass_by("in_handler")
        return ctx.attempt


if __name__ == "__main__":
    run_worker(msgspec.json.decode(sys.argv[1], type=Orders), declare)
