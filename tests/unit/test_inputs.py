"""From the ends of parents to the arguments of a child."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.errors import InvalidTask
from holdfast.model.task import TaskStatus
from holdfast.model.workflow import ParentEnd
from holdfast.workflows.inputs import Failure, Inputs, wanted


def end(number: int, status: TaskStatus = TaskStatus.COMPLETED, error: dict[str, Any] | None = None) -> ParentEnd:
    result = str(number) if status is TaskStatus.COMPLETED else None
    return ParentEnd(task_id=f"t{number}", name="n", status=status, result=result, error=error)


def leaves(value: Any) -> int:
    return sum(leaves(item) for item in value) if isinstance(value, list) else 1


@pytest.mark.parametrize(
    ("layout", "values"),
    [
        ([], []),
        ([None], [0]),
        ([None, None], [0, 1]),
        ([3], [[0, 1, 2]]),
        ([0], [[]]),
        ([[]], [[]]),
        ([2, None, [1, [None, 2]]], [[0, 1], 2, [[3], [4, [5, 6]]]]),
    ],
)
def test_parents_are_used_up_in_order(layout: list[Any], values: list[Any]) -> None:
    assert wanted(layout) == leaves(values)
    assert Inputs(layout, [end(number) for number in range(leaves(values))]).values() == values


@pytest.mark.parametrize("item", [True, -1, 1.0, "1", {}, [["x"]], [[-5]]])
def test_what_is_no_input_is_refused(item: Any) -> None:
    with pytest.raises(InvalidTask, match="an input is"):
        wanted([None, item])


def test_a_layout_that_is_nested_without_end_is_refused() -> None:
    layout: list[Any] = []
    for _ in range(500):
        layout = [layout]
    with pytest.raises(InvalidTask):
        wanted(layout)


def test_a_parent_that_did_not_complete_is_a_failure_also_in_lists() -> None:
    error = {"message": "no", "code": "ValueError"}
    ends = [end(0), end(1, TaskStatus.FAILED, error), end(2, TaskStatus.CANCELED)]
    failed, canceled = Failure("t1", "n", "failed", error), Failure("t2", "n", "canceled", None)
    assert Inputs([2, None], ends).values() == [[0, failed], canceled]


def test_another_process_builds_the_same_values() -> None:
    inputs = Inputs([None, [2]], [end(0), end(1, TaskStatus.FAILED, {"message": "no"}), end(2)])
    sent = msgspec.json.decode(msgspec.json.encode(inputs), type=Inputs)
    assert sent == inputs
    assert sent.values() == inputs.values()


def test_results_of_any_json_type_are_decoded() -> None:
    texts = ["null", '"a\\u0000b"', "-0.0", str(2**70), '{"a":[1]}', "true"]
    ends = [ParentEnd(task_id="t", name="n", status=TaskStatus.COMPLETED, result=text, error=None) for text in texts]
    assert Inputs([len(texts)], ends).values() == [[msgspec.json.decode(text) for text in texts]]
