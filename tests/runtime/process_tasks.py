"""Handlers that run in child processes: they have to be found by name, so they live in a module of their own."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from holdfast import Context, Failure, Fixed, Holdfast, Retry, Snooze, Unrecoverable, current_task
from holdfast.errors import DatasetNotFound, LeaseLost

app = Holdfast("memory://")


@app.task(run_in="process")
def divide(dividend: int, divisor: int) -> int:
    return dividend // divisor


@app.task(run_in="process")
async def gather(count: int) -> list[int]:
    async def one(number: int) -> int:
        await asyncio.sleep(0)
        return number

    return await asyncio.gather(*(one(number) for number in range(count)))


@app.task(run_in="process", takes_context=True)
def describe(ctx: Context, word: str) -> list[Any]:
    same = ctx is current_task()
    return [word, ctx.id, ctx.attempt, ctx.worker_id, ctx.meta, os.getpid(), same]


@app.task(run_in="process", takes_context=True)
def speak(ctx: Context) -> str:
    print("to standard output")
    print("to standard error", file=sys.stderr)
    ctx.progress(1, 2, "half way")
    ctx.emit("page.printed", {"no": 1})
    return ctx.follow_up(divide.s(8, 2))


@app.task(run_in="process", takes_context=True)
async def aspeak(ctx: Context) -> None:
    await ctx.aprogress(1, 2)


@app.task(run_in="process")
def receive(number: int, failures: list[Failure], word: str) -> list[Any]:
    (failure,) = failures
    assert failure.error is not None
    return [number, [type(failure).__name__, failure.task_id, failure.status, failure.error["code"]], word]


@app.task(run_in="process", takes_context=True, backoff=Fixed(0))
def in_steps(ctx: Context, ledger: str, fail_at: int) -> list[Any]:
    def one(number: int) -> dict[str, int]:
        with Path(ledger).open("a") as file:
            file.write(f"{number}\n")
        return {"number": number, "attempt": ctx.attempt}

    first = ctx.step("one", one, 1)
    if ctx.attempt == fail_at:
        os._exit(3)
    ctx.sleep(60)
    return [first, ctx.step("two", one, 2), ctx.attempt]


@app.task(run_in="process", takes_context=True, backoff=Fixed(0))
async def ain_steps(ctx: Context) -> list[Any]:
    async def one(number: int) -> int:
        return number * 10 + ctx.attempt

    async with asyncio.timeout(60):
        results = await asyncio.gather(*(ctx.astep(f"s{number}", one, number) for number in range(20)))
    await ctx.sleep(60)
    return [*results, ctx.attempt]


_left_behind: list[str] = []


@app.task(run_in="process", takes_context=True)
def leave_a_thread(ctx: Context, gate: str) -> int:
    def late() -> None:
        while not Path(gate).exists():
            time.sleep(0.005)
        try:
            ctx.step("late", lambda: "of another task")
        except LeaseLost:
            _left_behind.append("refused")

    threading.Thread(target=late, daemon=True).start()
    return os.getpid()


@app.task(run_in="process", takes_context=True)
def meet_the_thread(ctx: Context, gate: str) -> list[Any]:
    Path(gate).touch()
    while not _left_behind:
        time.sleep(0.005)
    return [ctx.step("own", os.getpid), *_left_behind]


@app.task(run_in="process", max_attempts=1, takes_context=True)
def step_twice(ctx: Context) -> None:
    ctx.step("same", int)
    ctx.step("same", int)


@app.task(run_in="process", takes_context=True)
def step_late(ctx: Context, pid_file: str, gate: str) -> Any:
    Path(pid_file).write_text(str(os.getpid()))
    while not Path(gate).exists():
        time.sleep(0.005)
    return ctx.step("late", lambda: ctx.attempt)


@app.task(run_in="process", max_attempts=2, backoff=Fixed(0))
def exit_hard() -> int:
    if current_task().attempt == 1:
        os._exit(3)
    return current_task().failures


@app.task(run_in="process", max_attempts=2, backoff=Fixed(0))
def crash() -> int:
    if current_task().attempt == 1:
        ctypes.string_at(0)
    return current_task().failures


@app.task(run_in="process", max_attempts=1, timeout=1)
def hang(pid_file: str) -> None:
    Path(pid_file).write_text(str(os.getpid()))
    time.sleep(3600)


@app.task(run_in="process", max_attempts=2, backoff=Fixed(0))
def hang_for_ever(pid_file: str) -> int:
    if current_task().attempt > 1:
        return current_task().attempt
    Path(pid_file).write_text(str(os.getpid()))
    time.sleep(3600)
    return 0


@app.task(run_in="process", takes_context=True)
def until_canceled(ctx: Context) -> None:
    ctx.progress(0)
    while not ctx.cancel_requested:
        time.sleep(0.005)
    raise ValueError("stopped half way")


@app.task(run_in="process", max_attempts=1)
def end_as(what: str) -> Any:
    match what:
        case "SystemExit":
            raise SystemExit(2)
        case "Unrecoverable":
            raise Unrecoverable("never")
        case "Snooze":
            raise Snooze(500)
        case "Retry":
            raise Retry(after=500)
        case "surrogate":
            raise ValueError("\udc80")
        case "result":
            return {1, 2}
    return what


@app.task(run_in="process")
def own_pid() -> int:
    return os.getpid()


class Shelf:
    @staticmethod
    @app.task(run_in="process")
    def nested() -> str:
        return "found"


@app.task(run_in="process")
def fork_and_return() -> str:
    """Without minding that the copy returns as well."""
    return "copy" if os.fork() == 0 else "original"


@app.task(run_in="process", max_attempts=1)
def die_before_a_copy(pid_file: str) -> None:
    copy = os.fork()
    if copy == 0:
        time.sleep(3600)
    Path(pid_file).write_text(str(copy))
    os._exit(3)


@app.task(run_in="process", max_attempts=1, timeout=1)
def hang_with_a_copy(pid_file: str) -> None:
    copy = os.fork()
    if copy:
        Path(pid_file).write_text(str(copy))
    time.sleep(3600)


@app.task(run_in="process", max_attempts=1)
def meddle(what: str) -> None:
    """With the line to the worker, whose descriptor stands on the command line."""
    line = int(sys.argv[1])
    os.close(line) if what == "close" else os.write(line, b"nonsense\n")


@app.task(run_in="process", takes_context=True, backoff=Fixed(0))
def write_orders(ctx: Context, many: int) -> None:
    ctx.output("orders", {f"k{number:05}": number for number in range(many)})
    if ctx.attempt == 1:
        ctx.output("orders", {"lost": 1})
        raise ValueError


@app.task(run_in="process", takes_context=True, max_attempts=1)
def read_orders(ctx: Context) -> list[Any]:
    rows = ctx.input("orders")
    return [sum(value for _, value in rows), rows[0][0]]


@app.task(run_in="process", takes_context=True)
async def aread_orders(ctx: Context) -> int:
    return sum(value for _, value in await ctx.ainput("orders"))


@app.task(run_in="process", takes_context=True)
def expect_nothing(ctx: Context) -> str:
    try:
        ctx.input("orders")
    except DatasetNotFound as refused:
        return type(refused).__name__
    return "found"
