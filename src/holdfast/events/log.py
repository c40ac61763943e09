"""Writes what is told as log lines: subject.past_participle, fields not prose, one line per fact.

Debug is each step, info each change of a worker, warning what healed itself, error what needs a person. Task data is
hostile: it is shown with repr-like escapes, so that no value can forge a line.
"""

from __future__ import annotations

import logging

from holdfast.events import facts
from holdfast.model.claim import Claim
from holdfast.model.outcome import Failed, Outcome
from holdfast.model.task import TaskStatus

log = logging.getLogger("holdfast.worker")


def write(told: facts.Told) -> None:
    match told:
        case facts.TaskSettled(claim, outcome, settled):
            _settled(claim, outcome, settled.status)
        case facts.WorkerStarted(worker_id, store, queues, concurrency, tasks):
            where = ",".join(queues) if queues else "all"
            log.info(
                "worker.started worker=%s store=%s queues=%s slots=%d tasks=%d",
                worker_id,
                store,
                where,
                concurrency,
                tasks,
            )
        case facts.WorkerStopping(worker_id, running, grace):
            log.info("worker.stopping worker=%s running=%d grace_s=%g", worker_id, running, grace)
        case facts.WorkerStopped(worker_id, released):
            log.info("worker.stopped worker=%s released=%d", worker_id, released)
        case facts.LeaseWasLost(claim, why):
            log.warning("lease.lost %s why=%s", _attempt(claim), safe(why))
        case facts.NameUnknown(claim, hint):
            log.warning("task.unknown %s snoozed%s; import the module that declares it", _attempt(claim), safe(hint))
        case facts.HandlerBlocked(claim, place, seconds):
            who = _attempt(claim) if claim is not None else "task=?"
            log.warning("loop.blocked %s for_s=%.1f at=%s", who, seconds, safe(place))
        case facts.HandlerStuck(claim, stuck, slots):
            log.error("handler.stuck %s stuck=%d slots=%d", _attempt(claim), stuck, slots)
        case facts.Reaped(settled):
            for each in settled:
                log.warning("lease.expired task=%s attempt=%d status=%s", each.task_id, each.attempt, each.status.value)
        case facts.Evicted(worker_ids):
            log.warning("worker.gone workers=%s; its leases are ended", ",".join(safe(name) for name in worker_ids))
        case facts.ScheduleFired(name, instants):
            for instant in instants:
                log.info("schedule.fired schedule=%s at=%s", safe(name), instant.isoformat())
        case facts.ScheduleFailed(name, error):
            log.error("schedule.failed schedule=%s error=%s; the others go on", safe(name), safe(error))
        case facts.Relayed(sink, number):
            log.debug("outbox.relayed sink=%s rows=%d", safe(sink), number)
        case facts.RowDead(sink, row_id, task_id, error):
            log.error(
                "outbox.dead sink=%s row=%d task=%s error=%s; see `holdfast outbox list --state dead`",
                safe(sink),
                row_id,
                safe(task_id),
                safe(error),
            )
        case facts.RowsDead(sink, number, error):
            log.error(
                "outbox.dead sink=%s rows=%d error=%s; see `holdfast outbox list --state dead`",
                safe(sink),
                number,
                safe(error),
            )
        case facts.SinkAway(sink, error):
            log.warning("sink.away sink=%s error=%s; its rows wait", safe(sink), safe(error))
        case facts.SinkBack(sink, away_seconds):
            log.warning("sink.back sink=%s after_s=%.1f", safe(sink), away_seconds)
        case facts.SinkLeft(sink, why):
            log.info("sink.left sink=%s why=%s; left to other processes", safe(sink), safe(why))
        case facts.SinkFailed(sink, error):
            log.error("sink.failed sink=%s error=%s; it is not declared", safe(sink), safe(error))
        case facts.WakeupAway(url, error):
            log.warning("wakeup.away url=%s error=%s; polling goes on", safe(url), safe(error))
        case facts.WakeupBack(url):
            log.warning("wakeup.back url=%s", safe(url))
        case facts.WakeupsRefused(url, number):
            log.warning("wakeup.refused url=%s messages=%d; not ours", safe(url), number)
        case facts.StoreAway(error):
            log.warning("store.away error=%s; retrying", safe(error))
        case facts.StoreBack(away_seconds):
            log.warning("store.back after_s=%.1f", away_seconds)
        case facts.PartFailed(part, error):
            log.error("part.failed part=%s error=%s; going on", part, safe(error))


def _settled(claim: Claim, outcome: Outcome, status: TaskStatus) -> None:
    if isinstance(outcome, Failed):
        level = logging.ERROR if status is TaskStatus.FAILED else logging.WARNING
        log.log(level, "task.failed %s status=%s error=%s", _attempt(claim), status.value, safe(outcome.error.message))
    elif log.isEnabledFor(logging.DEBUG):
        log.debug("task.settled %s as=%s status=%s", _attempt(claim), outcome.kind, status.value)


def _attempt(claim: Claim) -> str:
    lease = claim.lease
    return f"task={lease.task_id} name={safe(claim.name)} queue={safe(claim.queue)} attempt={lease.attempt}"


def safe(text: str, limit: int = 500) -> str:
    """One printable line: newlines and terminal escapes are shown, not obeyed."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:limit])
    return shown if len(text) <= limit else f"{shown}…"
