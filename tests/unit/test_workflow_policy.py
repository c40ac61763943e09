"""What the end of a parent means, when a run has ended and how, how parents are dealt into buckets, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidTask
from holdfast.model.task import TERMINAL, NewTask, TaskStatus
from holdfast.model.workflow import RunStatus
from holdfast.policy.repetition import admitted
from holdfast.policy.workflow import BUCKETS_FROM, Effect, bucket_size, effect, run_status

STATUSES = st.sampled_from(TaskStatus)
COUNTS = st.dictionaries(st.sampled_from([status.value for status in TaskStatus]), st.integers(0, 3))


@given(STATUSES, STATUSES, st.sampled_from(["cancel", "run"]), st.booleans())
def test_only_an_end_has_an_effect_and_an_edge_counts_once(
    parent: TaskStatus, child: TaskStatus, policy: str, counted: bool
) -> None:
    found = effect(parent, child, policy, counted=counted)
    if parent not in TERMINAL:
        assert found is Effect.NOTHING
    if counted:
        assert found is not Effect.COUNT
    if found is Effect.CANCEL:
        assert child is TaskStatus.WAITING
        assert policy == "cancel"
        assert parent is not TaskStatus.COMPLETED


def test_a_completed_parent_always_counts_the_first_time() -> None:
    for child in TaskStatus:
        assert effect(TaskStatus.COMPLETED, child, "cancel", counted=False) is Effect.COUNT


@given(st.integers(1, 2_000_000))
def test_neither_a_bucket_nor_their_number_is_large(parents: int) -> None:
    size = bucket_size(parents)
    if parents < BUCKETS_FROM:
        assert size == 0
    else:
        assert size * size >= parents
        assert (size - 1) * (size - 1) < parents


@given(COUNTS, st.data())
def test_a_run_is_live_or_ended_by_its_tasks(counts: dict[str, int], data: st.DataObject) -> None:
    last = {status: data.draw(st.integers(0, number)) for status, number in counts.items()}
    status = run_status(counts, last)
    live = any(counts.get(one) for one in ("waiting", "queued", "running"))
    assert (status is RunStatus.RUNNING) == live
    if status is RunStatus.FAILED:
        assert counts.get("failed")
    if status is RunStatus.COMPLETED:
        assert not last.get("failed")
        assert not last.get("canceled")


def test_half_a_workflow_is_refused() -> None:
    parent = NewTask(id="p", name="parent", payload="null", run_id="r")
    child = NewTask(id="c", name="child", payload="null", run_id="r", parents=("p",))
    _, fresh = admitted([parent, child], by_id=lambda _: None, by_key=lambda _: None)
    assert fresh == [parent, child]
    with pytest.raises(InvalidTask, match="submitted before"):
        admitted([parent, child], by_id={"p": parent}.get, by_key=lambda _: None)
