"""The memory store's list of workers, and the evidence that they live (contract C6.7)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from holdfast.clock import from_micros, span_micros
from holdfast.model.claim import Lease
from holdfast.model.query import WorkerInfo
from holdfast.policy.enrolment import REMOTE_KEPT_SECONDS
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.handle import Handle


class WorkerVerbs(Handle):
    # Workers

    async def enroll(self, worker: WorkerInfo) -> None:
        with self._state.lock:
            now = self._now()
            ensure_text(worker)
            known = self._state.workers.get(worker.id)
            if known is not None and worker.remote and not known[0].remote:
                return
            started = now if known is None else known[1]
            holder = threading.current_thread() if known is None else known[3]
            self._state.workers[worker.id] = (worker, started, now, holder)

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        with self._state.lock:
            now = self._now()
            if leases is None:
                self._state.workers.pop(worker_id, None)
                self._acts.end_leases({worker_id}, now)
                return
            known = self._state.workers.get(worker_id)
            if known is not None and known[0].remote:
                del self._state.workers[worker_id]
            self._acts.end_held(leases, now)

    async def workers(self) -> list[WorkerInfo]:
        with self._state.lock:
            self._now()
            running: dict[str | None, int] = {}
            for record in self._state.running.values():
                running[record.claimed_by] = running.get(record.claimed_by, 0) + 1
            return [
                _worker_shown(worker, started, seen, running.get(worker.id, 0))
                for worker, started, seen, _ in self._state.workers.values()
            ]

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002
        """The evidence in this process: the thread that enrolled the worker has ended. Of a remote one it is none."""
        with self._state.lock:
            now = self._now()
            self._forget_silent(now - span_micros(REMOTE_KEPT_SECONDS))
            enrolled = self._state.workers.items()
            gone = [name for name, (worker, _, _, holder) in enrolled if not (worker.remote or holder.is_alive())]
            for worker_id in gone:
                del self._state.workers[worker_id]
                self._acts.end_leases({worker_id}, now)
            return gone

    def _forget_silent(self, before: int) -> None:
        """Remote workers that were last seen so long ago are listed no more; their leases stay."""
        known = self._state.workers.items()
        for worker_id in [name for name, (worker, _, seen, _) in known if worker.remote and seen <= before]:
            del self._state.workers[worker_id]


def _worker_shown(worker: WorkerInfo, started: int, seen: int, running: int) -> WorkerInfo:
    return WorkerInfo(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        queues=worker.queues,
        concurrency=worker.concurrency,
        version=worker.version,
        names=worker.names,
        started_at=from_micros(started),
        seen_at=from_micros(seen),
        running=running,
        remote=worker.remote,
    )
