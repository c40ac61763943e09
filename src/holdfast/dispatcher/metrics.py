"""What the service has done, and how the store stands, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from holdfast.model.outbox import Sink
from holdfast.model.query import QueueInfo, WorkerInfo
from holdfast.model.task import TaskStatus
from holdfast.version import __version__

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STALE_SECONDS = 60.0
"""A worker that was last seen so long ago is not counted."""

Sample = tuple[Mapping[str, str], float]


class Counters:
    """Requests by route and status."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()

    def count(self, route: str, status: int) -> None:
        self._requests[route, status] += 1

    def samples(self) -> list[Sample]:
        return [
            ({"route": route, "status": str(status)}, number)
            for (route, status), number in sorted(self._requests.items())
        ]


def text(
    counters: Counters,
    *,
    queues: Sequence[QueueInfo],
    oldest_due: Mapping[str, datetime],
    workers: Sequence[WorkerInfo],
    sinks: Sequence[Sink],
    now: datetime,
) -> str:
    live = [worker for worker in workers if worker.seen_at is None or _age(worker.seen_at, now) < STALE_SECONDS]
    families = (
        _family("holdfast_build_info", "gauge", "Its version.", [({"version": __version__}, 1)]),
        _family("holdfast_requests_total", "counter", "Requests by route and status.", counters.samples()),
        _family("holdfast_tasks", "gauge", "Tasks by queue and status.", _counts(queues)),
        _family(
            "holdfast_queue_paused",
            "gauge",
            "1 where a queue is paused.",
            [({"queue": queue.name}, queue.paused) for queue in queues],
        ),
        _family(
            "holdfast_queue_oldest_due_seconds",
            "gauge",
            "For how long the task is due that has waited longest; 0 where none is.",
            [({"queue": queue.name}, max(0.0, _age(oldest_due.get(queue.name, now), now))) for queue in queues],
        ),
        _family("holdfast_workers", "gauge", "Workers that were seen lately.", [({}, len(live))]),
        _family("holdfast_slots", "gauge", "What they can run at once.", [({}, sum(w.concurrency for w in live))]),
        _family("holdfast_outbox_pending", "gauge", "Rows yet to be told.", [(_of(s), s.pending) for s in sinks]),
        _family("holdfast_outbox_dead", "gauge", "Rows that were given up.", [(_of(s), s.dead) for s in sinks]),
        _family(
            "holdfast_outbox_oldest_seconds",
            "gauge",
            "For how long the oldest row waits.",
            [(_of(s), 0.0 if s.oldest_at is None else max(0.0, _age(s.oldest_at, now))) for s in sinks],
        ),
    )
    return "".join(families)


def _of(sink: Sink) -> dict[str, str]:
    return {"sink": sink.name}


def _age(instant: datetime, now: datetime) -> float:
    return (now - instant).total_seconds()


def _counts(queues: Sequence[QueueInfo]) -> Iterable[Sample]:
    return [
        ({"queue": queue.name, "status": status.value}, queue.counts.get(status.value, 0))
        for queue in queues
        for status in TaskStatus
    ]


def _family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    lines = [
        f"{name}{_labels(labels)} {value:g}" if value < 1e6 else f"{name}{_labels(labels)} {value:.0f}"
        for labels, value in samples
    ]
    return "\n".join([f"# HELP {name} {about}", f"# TYPE {name} {kind}", *lines, ""])


def _labels(labels: Mapping[str, str]) -> str:
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}" if shown else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
