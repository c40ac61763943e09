"""Follows one task: its events as they are recorded, until it has ended."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.model.event import Event
from holdfast.model.task import Task

PAGE = 1000
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.02, 0.25


async def follow(app: Holdfast, task_id: str, *, as_json: bool, timeout: float | None) -> Task:
    """Print each event once, in order; the record as it ended."""
    try:
        async with asyncio.timeout(timeout):
            return await _followed(app, task_id, as_json)
    except TimeoutError:
        raise TimeoutError(f"task {task_id} has not ended within {timeout:g} s") from None


async def _followed(app: Holdfast, task_id: str, as_json: bool) -> Task:
    store = app.client.store
    after, pause = 0, FIRST_LOOK_SECONDS
    while True:
        # The record first: what is read of its events afterwards includes the one that ended it.
        task = await app.tasks.aget(task_id)
        while events := await store.events(task_id, after=after, limit=PAGE):
            for event in events:
                _put_event(event, as_json)
            after, pause = events[-1].id, FIRST_LOOK_SECONDS
        if task.status.terminal:
            return task
        await asyncio.sleep(pause)
        pause = min(2 * pause, LAST_LOOK_SECONDS)


def _put_event(event: Event, as_json: bool) -> None:
    if as_json:
        output.put_json(event)
        return
    moment = event.ts.strftime("%H:%M:%S.%f")[:-3]
    output.put(output.safe(f"{moment}  {event.kind.removeprefix('task.'):<10}  {words(event)}", 2000).rstrip())


def words(event: Event) -> str:
    """What a person wants to know of this event."""
    payload = event.payload
    match event.kind:
        case "task.enqueued":
            return f"{payload.get('name')} in queue {payload.get('queue')}"
        case "task.running":
            return f"attempt {payload.get('attempt')} on {event.actor}"
        case "task.progress":
            return _progress(payload)
        case "task.failed":
            error = payload.get("error") or {}
            left = "dead letter" if payload.get("terminal") else f"again in {payload.get('backoff_ms', 0) / 1000:g} s"
            budget = payload.get("max_attempts") or "∞"
            return f"failure {payload.get('failures')} of {budget}: {error.get('message')} ({left})"
        case "task.requeued" | "task.snoozed":
            return f"until {payload.get('available_at')} {payload.get('reason', '')}"
    own = {key: value for key, value in payload.items() if key not in ("ts", "task_id", "run_id", "actor", "attempt")}
    return output.compact(own) if own else ""


def _progress(payload: dict[str, Any]) -> str:
    done, total, message = payload.get("done"), payload.get("total"), payload.get("message") or ""
    numbers = isinstance(done, int | float) and isinstance(total, int | float) and total > 0
    share = f"{100 * done / total:3.0f} %  {done:g} of {total:g}" if numbers else f"{done}"  # type: ignore[operator]
    return f"{share}  {message}"
