"""The suite itself: it leaves out no clause and no cell, it notices broken stores, and it needs no test framework."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import ids
from holdfast.clock import span_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claimed, ClaimRequest, Extended, Lease
from holdfast.model.outbox import Delivery, OutboxRow
from holdfast.model.outcome import Settlement
from holdfast.model.query import Retention
from holdfast.model.task import NewTask, Submitted, Task, TaskStatus
from holdfast.model.token import NewToken, Token
from holdfast.model.transition import Settled
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing import conformance
from holdfast.testing.conformance import ALL_CASES, ELSEWHERE, Subject, clauses, run
from holdfast.testing.virtual_clock import VirtualClock
from tests.conformance.subjects import memory_subject

PROJECT = Path(__file__).parents[2]

# Sections 0–15 and 18 of the contract. Those without numbered clauses, and the preamble of section 7, stand for
# themselves.
CONTRACT = [
    *("C0.1", "C0.2"),
    *("C1", "C2"),
    *("C3.1", "C3.2", "C3.3"),
    *("C4.1", "C4.2", "C4.3", "C4.4", "C4.5"),
    *("C5.1", "C5.2", "C5.3", "C5.4", "C5.5"),
    *("C6.1", "C6.2", "C6.3", "C6.4", "C6.5", "C6.6", "C6.7", "C6.8"),
    *("C7", "C7.1", "C7.2", "C7.3", "C7.4", "C7.5", "C7.6", "C7.7"),
    *("C8.1", "C8.2", "C8.3", "C8.4", "C8.5"),
    *("C9.1", "C9.2", "C9.3", "C9.4", "C9.5"),
    *("C10.1", "C10.2", "C10.3", "C10.4", "C10.5", "C10.6", "C10.7", "C10.8"),
    *("C11.1", "C11.2", "C11.3"),
    *("C12.1", "C12.3", "C12.4"),
    *("C13.1", "C13.2", "C13.3"),
    *("C14.3",),
    *("C15", "C18"),
]

ROWS = {
    "claim by id": ["claim_by_id"],
    "heartbeat, progress, step": ["heartbeat", "progress"],
    "complete, fail, snooze, release, settle canceled": ["complete", "fail", "snooze", "release", "settle_canceled"],
    "cancel": ["cancel"],
    "requeue": ["requeue"],
    "release --force": ["release_by_force"],
    "delete": ["delete"],
}
COLUMNS = ["waiting", "queued", "running", "expired", "completed", "failed", "canceled", "unknown"]


def test_every_clause_is_proved_here_or_elsewhere() -> None:
    assert set(CONTRACT) - clauses() - set(ELSEWHERE) == set()


def test_no_case_or_note_names_a_clause_that_does_not_exist() -> None:
    assert (clauses() | set(ELSEWHERE)) - set(CONTRACT) == set()


def test_every_cell_of_the_table_has_a_case() -> None:
    wanted = {f"cell_{verb}_{column}" for verbs in ROWS.values() for verb in verbs for column in COLUMNS}
    assert {case.name for case in ALL_CASES if case.name.startswith("cell_")} == wanted


def test_elsewhere_is_a_place_that_exists() -> None:
    for where in ELSEWHERE.values():
        assert (PROJECT / where.split(":")[0].split(",")[0]).is_dir()


def test_the_suite_needs_no_test_framework() -> None:
    program = (
        "import sys; import holdfast.testing.conformance;"
        "sys.exit([name for name in ('pytest', 'hypothesis', '_pytest') if name in sys.modules] or 0)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_module_of_the_suite_is_registered() -> None:
    """A module that nobody imports would take its cases with it, unnoticed."""
    modules = {module.name for module in pkgutil.iter_modules(conformance.__path__)}
    assert modules - set(vars(conformance)) == set()


def test_the_runner_reports_what_passed_and_what_was_skipped() -> None:
    report = run(memory_subject)
    assert report.failures == {}
    assert set(report.skipped.values()) == {"durable", "joined_transactions"}
    assert len(report.passed) + len(report.skipped) == len(ALL_CASES)


# Stores that break one promise each


class ForgetsTheKey(MemoryStore):
    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        return await super().submit([msgspec.structs.replace(new, idempotency_key=None) for new in tasks])


class ForgetsTheClaim(MemoryStore):
    async def claim(self, request: ClaimRequest) -> Claimed:
        return await super().claim(msgspec.structs.replace(request, claim_id=ids.token()))


class ForgetsTheToken(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        current = [self._current(settlement) for settlement in settlements]
        return await super().settle(current)

    def _current(self, settlement: Settlement) -> Settlement:
        record = self._state.records.get(settlement.lease.task_id)
        token = settlement.lease.token if record is None or record.token is None else record.token
        return msgspec.structs.replace(
            settlement, lease=Lease(settlement.lease.task_id, settlement.lease.attempt, token)
        )


class ExtendsTheDead(MemoryStore):
    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        for lease in leases:
            record = self._state.records.get(lease.task_id)
            if record is not None and record.expired(self._state.clock.micros()):
                record.lease_expires_at = self._state.clock.micros() + 1
        return await super().extend(leases)


class ShowsTheToken(MemoryStore):
    async def get(self, task_id: str) -> Task | None:
        task = await super().get(task_id)
        record = self._state.records.get(task_id)
        if task is None or record is None or record.token is None:
            return task
        return msgspec.structs.replace(task, meta={"token": record.token})


class ReapsTooMuch(MemoryStore):
    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        now = self._now()
        running = list(self._state.running.values())[:limit]
        return [self._acts.reap_one(record, actor, now) for record in running]


class SwallowsEvents(MemoryState):
    def note(self, record: Any, fact: Any, now: int, actor: str) -> None:
        if fact.kind != "task.requeued":
            super().note(record, fact, now, actor)


class MiscountsFailures(MemoryState):
    def write(self, record: Any, transition: Any, now: int, actor: str) -> None:
        super().write(record, transition, now, actor)
        if transition.status is TaskStatus.CANCELED:
            record.failures += 1


class TellsTwice(MemoryStore):
    async def take_outbox(self, sinks: Sequence[str], *, limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
        return await super().take_outbox(sinks, limit=limit, hold=hold, hold_seconds=min(hold_seconds, 0.0))


class BelievesEverybody(MemoryStore):
    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            row = self._state.outbox.rows.get(delivery.row_id)
            if row is not None:
                row.hold = delivery.hold
        await super().record_deliveries(deliveries)


class ForgetsToTell(MemoryState):
    def bury(self, record: Any, now: int, actor: str) -> None:
        sinks, self.outbox.sinks = self.outbox.sinks, {}
        super().bury(record, now, actor)
        self.outbox.sinks = sinks


class WritesTheStale(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        answers = await super().settle(settlements)
        for settlement, answer in zip(settlements, answers, strict=True):
            if isinstance(answer, HoldfastError):
                self._state.datasets.write(settlement.outputs, settlement.lease.task_id, self._now())
        return answers


class WritesTheReplayed(MemoryStore):
    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        ended = {task_id for task_id, record in self._state.records.items() if record.status.terminal}
        answers = await super().settle(settlements)
        for settlement in settlements:
            if settlement.lease.task_id in ended:
                self._state.datasets.write(settlement.outputs, settlement.lease.task_id, self._now())
        return answers


class PrunesWhatIsRead(MemoryStore):
    def _prune_versions(self, retention: Retention, now: int, limit: int) -> int:
        age = retention.outputs or timedelta.max
        return self._state.datasets.prune((), now - span_micros(age.total_seconds()), limit)


class RevivesTokens(MemoryStore):
    async def add_token(self, new: NewToken) -> Token:
        self._state.tokens.pop(new.id, None)
        return await super().add_token(new)


BROKEN: dict[str, tuple[type[MemoryState], type[MemoryStore], str]] = {
    "forgets the key": (MemoryState, ForgetsTheKey, "a_known_key_answers_with_its_task_when_completed"),
    "forgets the claim id": (MemoryState, ForgetsTheClaim, "the_same_claim_again_gives_the_same_leases"),
    "forgets the token": (MemoryState, ForgetsTheToken, "cell_complete_running"),
    "extends the dead": (MemoryState, ExtendsTheDead, "an_expired_lease_is_nobodys_although_nobody_reaped_it"),
    "shows the token": (MemoryState, ShowsTheToken, "a_token_is_shown_to_its_claimer_alone"),
    "reaps too much": (MemoryState, ReapsTooMuch, "the_reaper_leaves_valid_leases_alone"),
    "swallows events": (SwallowsEvents, MemoryStore, "a_life_can_be_replayed_from_its_events"),
    "miscounts failures": (MiscountsFailures, MemoryStore, "after_every_act_the_events_tell_what_the_record_shows"),
    "tells twice": (MemoryState, TellsTwice, "a_taken_row_is_held_until_the_hold_is_over"),
    "believes every relay": (MemoryState, BelievesEverybody, "a_taken_row_is_held_until_the_hold_is_over"),
    "forgets to tell of deletions": (ForgetsToTell, MemoryStore, "rows_outlive_their_task"),
    "writes what is stale": (MemoryState, WritesTheStale, "a_stale_completion_writes_nothing"),
    "writes what is replayed": (MemoryState, WritesTheReplayed, "a_repeated_completion_writes_nothing_more"),
    "prunes what is read": (MemoryState, PrunesWhatIsRead, "a_version_that_a_live_task_reads_is_not_pruned"),
    "brings back tokens": (MemoryState, RevivesTokens, "a_token_made_again_after_a_lost_reply_is_the_same"),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_the_suite_notices_a_store_that(flaw: str) -> None:
    make_state, make_store, promise = BROKEN[flaw]
    cases = [case for case in ALL_CASES if case.name == promise]
    assert list(run(_broken_subject(make_state, make_store), cases).failures) == [promise]


def _broken_subject(make_state: type[MemoryState], make_store: type[MemoryStore]) -> Callable[[], Subject]:
    def make() -> Subject:
        clock = VirtualClock()
        state = make_state(clock)
        return Subject(lambda: make_store(state), clock)

    return make
