"""What a workflow becomes: tasks of one submit, their parents, their inputs; and what is refused before anything is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from holdfast import Graph, Holdfast, chain, chord, group
from holdfast.calls import Call, Step, Then
from holdfast.declared import DeclaredTask
from holdfast.errors import CycleError, IdempotencyConflict, InvalidTask, PayloadTooLarge
from holdfast.model.task import NewTask
from holdfast.workflows.plan import Composite, Planned
from holdfast.workflows.workflow import Submission

Take = DeclaredTask[[Any], Any, Any]


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


@pytest.fixture
def take(app: Holdfast) -> Take:
    @app.task(name="take")
    def take(value: Any) -> Any:
        return value

    return take


def planned(workflow: Any) -> Planned:
    return (workflow if isinstance(workflow, Submission) else Submission(workflow, {})).follow_up()


def edges(tasks: list[NewTask]) -> list[list[int]]:
    """The parents of each task, by their place."""
    places = {new.id: place for place, new in enumerate(tasks)}
    return [[places[parent] for parent in new.parents] for new in tasks]


def inputs(tasks: list[NewTask]) -> list[Any]:
    return [msgspec.json.decode(new.payload).get("inputs") for new in tasks]


def drawn(workflow: Any) -> tuple[list[list[int]], list[Any]]:
    tasks = planned(workflow).tasks
    return edges(tasks), inputs(tasks)


def nothing_was_written(app: Holdfast) -> bool:
    return app.tasks.list() == []


# Shapes


def test_a_chain_hands_each_result_to_the_next_step(take: Take) -> None:
    assert drawn(chain(take.s(1), take.then(), take.then())) == ([[], [0], [1]], [None, [None], [None]])


def test_a_complete_call_in_a_chain_waits_and_takes_nothing(take: Take) -> None:
    assert drawn(chain(take.s(1), take.s(2))) == ([[], [0]], [None, None])


def test_a_group_is_tasks_side_by_side(take: Take) -> None:
    assert drawn(group(take.s(number) for number in range(3))) == ([[], [], []], [None, None, None])


def test_a_finalizer_takes_one_list(take: Take) -> None:
    assert drawn(chord([take.s(1), take.s(2), take.s(3)], take.then())) == (
        [[], [], [], [0, 1, 2]],
        [None, None, None, [3]],
    )


def test_members_that_are_then_all_take_the_step_before_the_group(take: Take) -> None:
    assert drawn(chain(take.s(1), group([take.then(), take.then()]), take.then())) == (
        [[], [0], [0], [1, 2]],
        [None, [None], [None], [2]],
    )


def test_a_chain_within_a_group_counts_as_one_member(take: Take) -> None:
    assert drawn(chord([chain(take.s(1), take.then()), take.s(2)], take.then())) == (
        [[], [0], [], [1, 2]],
        [None, [None], None, [2]],
    )


def test_groups_within_groups_give_lists_of_lists(take: Take) -> None:
    pairs: list[Step[Any, Any]] = [group([take.s(1), take.s(2)]), take.s(3), group([take.s(4)]), group([])]
    assert drawn(chain(group(pairs), take.then())) == (
        [[], [], [], [], [0, 1, 2, 3]],
        [None, None, None, None, [[2, None, 1, 0]]],
    )


def test_a_chain_that_begins_with_then_takes_what_stands_before_it(take: Take) -> None:
    assert drawn(chain(take.s(1), chain(take.then(), take.then()), take.then())) == (
        [[], [0], [1], [2]],
        [None, [None], [None], [None]],
    )


def test_an_empty_group_within_a_workflow_gives_an_empty_list(take: Take) -> None:
    assert drawn(chord([], take.then())) == ([[]], [[0]])
    assert drawn(chain(take.s(1), group([]), take.then())) == ([[], [0]], [None, [0]]), (
        "it still waits for what is before"
    )
    assert drawn(chain(take.s(1), group([take.then(), group([])]), take.then())) == (
        [[], [0], [1, 0]],
        [None, [None], [[None, 0]]],
    )


def test_a_node_takes_its_parents_in_the_order_in_which_it_names_them(app: Holdfast, take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(1))
    b, c = graph.add(take.then(), after=[a]), graph.add(take.then(), after=[a])
    graph.add(app.then("join"), after=[c, b])
    assert drawn(graph) == ([[], [0], [0], [2, 1]], [None, [None], [None], [None, None]])


def test_a_node_may_be_a_workflow(take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(0))
    both = graph.add(group([take.then(), chain(take.then(), take.then())]), after=[a])
    graph.add(take.then(), after=[both])
    assert drawn(graph) == (
        [[], [0], [0], [2], [1, 3]],
        [None, [None], [None], [None], [2]],
    )


def test_a_graph_may_be_a_step(take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(0))
    graph.add(take.then(), after=[a])
    graph.add(take.then(), after=[a])
    assert drawn(chain(take.s(9), graph, take.then())) == (
        [[], [0], [1], [1], [2, 3]],
        [None, None, [None], [None], [2]],
    )


def test_an_edge_waits_and_takes_nothing(take: Take) -> None:
    graph = Graph()
    late = graph.add(take.s(0))
    first = graph.add(take.s(1))
    graph.add(take.then(), after=[late])
    graph.edge(first, late)
    tasks = planned(graph).tasks
    assert edges(tasks) == [[], [0], [1]]
    assert [msgspec.json.decode(new.payload)["args"] for new in tasks] == [[1], [0], []]
    assert inputs(tasks) == [None, None, [None]]


def test_an_edge_beside_an_input_adds_nothing(take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(0))
    b = graph.add(take.then(), after=[a])
    graph.edge(a, b)
    assert drawn(graph) == ([[], [0]], [None, [None]])


def test_arguments_and_options_of_each_call_are_kept(app: Holdfast) -> None:
    @app.task(name="store", queue="q", max_attempts=9)
    def store(rows: list[int], table: str, *, loud: bool = False) -> None: ...

    _, new = planned(chain(app.s("rows"), store.using(priority=3, delay=60).then("t", loud=True))).tasks
    assert msgspec.json.decode(new.payload) == {"args": ["t"], "kwargs": {"loud": True}, "inputs": [None]}
    assert (new.name, new.queue, new.max_attempts, new.priority, new.delay_seconds) == ("store", "q", 9, 3, 60)


def test_ids_ascend_and_all_belong_to_one_run(take: Take) -> None:
    plan = planned(chord([take.s(1), take.s(2)], take.then()))
    made = [new.id for new in plan.tasks]
    assert made == sorted(made)
    assert {new.run_id for new in plan.tasks} == {plan.run_id}
    assert plan.run_id < made[0]
    assert planned(chord([take.s(1)], take.then()).using(run_id="mine")).run_id == "mine"
    assert planned(chain(take.s(1))).run_id != plan.run_id


def test_a_large_chord_is_built_with_a_small_finalizer(take: Take) -> None:
    tasks = planned(chord((take.s(number) for number in range(100_000)), take.then())).tasks
    assert len(tasks) == 100_001
    assert len(tasks[-1].parents) == 100_000
    assert tasks[-1].payload == '{"args":[],"kwargs":{},"inputs":[100000]}'


def test_members_of_a_wide_step_share_what_they_wait_for(take: Take) -> None:
    tasks = planned(chain(group([take.s(1)] * 500), group([take.then()] * 500))).tasks
    assert len({id(new.parents) for new in tasks[500:]}) == 1


# Failure


def failing(workflow: Any) -> list[tuple[str, str | None]]:
    """How the tasks take failure; of the name under which they fail fast the part that is not the plan's."""
    tasks = planned(workflow).tasks
    names = [None if new.fail_fast is None else new.fail_fast.removeprefix(f"{tasks[0].id}.") for new in tasks]
    return [(new.on_parent_failure, name) for new, name in zip(tasks, names, strict=True)]


def test_options_hold_for_all_tasks_but_for_inner_ones_that_say_otherwise(take: Take) -> None:
    plain, anyway = ("cancel", None), ("run", None)
    assert failing(chain(take.s(1), take.then())) == [plain, plain]
    assert failing(chain(take.s(1), take.then(), on_parent_failure="run")) == [anyway, anyway]
    inner = chain(take.then(), take.then(), on_parent_failure="cancel")
    assert failing(chain(take.s(1), inner, take.then(), on_parent_failure="run")) == [anyway, plain, plain, anyway]
    assert failing(chain(take.s(1), group([take.then()], on_parent_failure="run"))) == [plain, anyway]
    graph = Graph()
    a = graph.add(take.s(1))
    graph.add(take.then(), after=[a], on_parent_failure="run")
    assert failing(graph) == [plain, anyway]


def test_who_fails_fast_does_so_with_the_outermost_that_asked(take: Take) -> None:
    fast = group([take.s(1), take.s(2)], fail_fast=True)
    other = chain(take.s(3), group([take.s(4)], fail_fast=True), fail_fast=True)
    assert [name for _, name in failing(group([fast, other]))] == ["1", "1", "2", "2"]
    assert [name for _, name in failing(chain(fast, take.s(5)))] == ["1", "1", None]
    assert [name for _, name in failing(chain(fast, take.s(5), fail_fast=True))] == ["1", "1", "1"]
    assert [name for _, name in failing(chord([take.s(1)], take.then(), fail_fast=True))] == ["1", "1"]


def test_nodes_that_fail_fast_end_together(take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(1), fail_fast=True)
    graph.add(take.s(2))
    graph.add(take.then(), after=[a], fail_fast=True)
    assert [name for _, name in failing(graph)] == ["1", None, "1"]
    whole = Graph(fail_fast=True, on_parent_failure="run")
    whole.add(take.s(1))
    assert failing(whole) == [("run", "1")]


@pytest.mark.parametrize("wrong", ["ignore", "", 1])
def test_an_unknown_way_to_take_failure_is_refused(take: Take, wrong: Any) -> None:
    with pytest.raises(InvalidTask, match="'cancel' or 'run'"):
        chain(take.s(1), on_parent_failure=wrong)
    with pytest.raises(InvalidTask, match="'cancel' or 'run'"):
        Graph().add(take.s(1), on_parent_failure=wrong)


# What is refused


def test_then_without_a_step_before_it_is_refused(app: Holdfast, take: Take) -> None:
    for workflow in (
        chain(take.then(), take.then()),
        group([take.s(1), take.then()]),
        chord([take.then()], take.then()),
    ):
        assert isinstance(workflow, Composite)
        with pytest.raises(InvalidTask, match="none stands there"):
            workflow.enqueue()  # type: ignore[attr-defined]
    with pytest.raises(InvalidTask, match="name them with after"):
        Graph().add(take.then())  # type: ignore[call-overload]
    assert nothing_was_written(app)


def test_a_step_that_could_not_take_its_inputs_is_refused(app: Holdfast) -> None:
    @app.task(name="two")
    def two(a: int, b: int) -> int:
        return a + b

    @app.task(name="none")
    def none() -> int:
        return 1

    @app.task(name="named")
    def named(*, value: int) -> None: ...

    wrong: list[Any] = [two.then(), two.then(1, 2), two.then(1, c=3), none.then(), named.then()]  # type: ignore[call-overload, misc]
    for step in wrong:
        with pytest.raises(InvalidTask, match=r"takes \("):
            chain(none.s(), step).enqueue()
    graph = Graph()
    a, b = graph.add(none.s()), graph.add(none.s())
    with pytest.raises(InvalidTask, match="too many positional"):
        graph.add(two.then(1), after=[a, b])
    graph.add(two.then(), after=[a, b])
    with pytest.raises(InvalidTask, match="missing a required argument: 'b'"):
        graph.add(two.then(), after=[a])
    assert nothing_was_written(app)


def test_a_cycle_is_refused_and_named(app: Holdfast, take: Take) -> None:
    graph = Graph()
    a = graph.add(take.s(1))
    b = graph.add(take.then(), after=[a])
    c = graph.add(take.then(), after=[b])
    graph.add(take.then(), after=[c])
    graph.edge(c, a)
    words = r"take \(node 0\) → take \(node 1\) → take \(node 2\) → take \(node 0\)"
    with pytest.raises(CycleError, match=words):
        graph.enqueue()
    alone = Graph()
    node = alone.add(take.s(1))
    alone.edge(node, node)
    with pytest.raises(CycleError, match=r"take \(node 0\) → take \(node 0\)"):
        alone.enqueue()
    assert nothing_was_written(app)


def test_a_node_of_another_graph_is_refused(app: Holdfast, take: Take) -> None:
    one, other = Graph(), Graph()
    stranger = other.add(take.s(1))
    with pytest.raises(InvalidTask, match="of another graph"):
        one.add(take.then(), after=[stranger])
    with pytest.raises(InvalidTask, match="of another graph"):
        one.edge(one.add(take.s(1)), stranger)
    with pytest.raises(TypeError, match="not Call"):
        one.add(take.s(1), after=[take.s(2)])  # type: ignore[list-item]
    with pytest.raises(InvalidTask, match="twice"):
        other.add(take.then(), after=[stranger, stranger])


def test_a_workflow_without_tasks_is_refused(take: Take) -> None:
    with pytest.raises(InvalidTask, match="has no task"):
        group([]).enqueue()
    with pytest.raises(InvalidTask, match="has no task"):
        group([group([]), group([])]).enqueue()
    with pytest.raises(InvalidTask, match="no nodes"):
        Graph().enqueue()
    with pytest.raises(InvalidTask, match="no steps"):
        chain()  # type: ignore[call-overload]


def test_what_is_no_step_is_refused(take: Take) -> None:
    with pytest.raises(TypeError, match="not int"):
        chain(take.s(1), 7).enqueue()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="not DeclaredTask"):
        chain(take.s(1), take).enqueue()  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="not Submission"):
        group([chain(take.s(1)).using(run_id="r")]).enqueue()  # type: ignore[arg-type]


def test_what_belongs_to_the_run_is_refused_on_a_member(app: Holdfast, take: Take) -> None:
    with pytest.raises(InvalidTask, match="own run_id; give it to the workflow"):
        chain(take.using(run_id="r").s(1)).enqueue()
    with pytest.raises(InvalidTask, match="own idempotency_key; give it to the workflow"):
        group([take.using(idempotency_key="k").s(1)]).enqueue()
    with pytest.raises(InvalidTask, match="carries no connection"):
        take.using(connection=object()).then()
    with pytest.raises(TypeError, match="takes no option 'queue'"):
        chain(take.s(1)).using(queue="q")  # type: ignore[call-arg]
    assert nothing_was_written(app)


def test_tasks_of_two_apps_are_refused(take: Take) -> None:
    with Holdfast("memory://") as other, pytest.raises(InvalidTask, match="another app"):
        chain(take.s(1), other.s("x")).enqueue()


def test_more_tasks_or_edges_than_a_workflow_may_have_are_refused(take: Take) -> None:
    call: Call[Any] = take.s(1)
    then: Then[Any, Any] = take.then()
    with pytest.raises(InvalidTask, match="250,000"):
        group(call for _ in iter(int, 1))
    with pytest.raises(InvalidTask, match="at most 250,000 tasks"):
        group([group([call] * 200_000), group([call] * 50_001)]).enqueue()
    with pytest.raises(InvalidTask, match="at most 1,000,000 edges"):
        chain(group([call] * 1001), group([then] * 1000)).enqueue()


def test_a_workflow_that_holds_itself_is_refused(take: Take) -> None:
    graph = Graph()
    graph.add(chain(take.s(1), graph))
    with pytest.raises(InvalidTask, match="nested too deeply, or in itself"):
        graph.enqueue()


def test_lists_of_lists_are_as_deep_as_json_may_be(take: Take) -> None:
    nested: Any = group([take.s(1)])
    for _ in range(250):
        nested = group([nested])
    with pytest.raises(InvalidTask, match="nested too deeply"):
        chain(nested, take.then()).enqueue()


def test_inputs_count_towards_the_size_of_a_payload() -> None:
    with Holdfast("memory://", max_payload_bytes=200) as app:
        pairs = [group([app.s("x"), app.s("x")]) for _ in range(100)]
        with pytest.raises(PayloadTooLarge, match="more than 200 bytes"):
            chord(pairs, app.then("sum")).enqueue()
        assert nothing_was_written(app)


# Keys


def test_the_key_of_a_workflow_stands_on_its_first_task(take: Take) -> None:
    tasks = planned(chain(take.s(1), take.then()).using(idempotency_key="k")).tasks
    assert [new.idempotency_key for new in tasks] == ["k", None]


def test_members_without_edges_have_a_key_each(take: Take) -> None:
    tasks = planned(group([take.s(1), take.s(2)]).using(idempotency_key="k")).tasks
    assert [new.idempotency_key for new in tasks] == ["k#0", "k#1"]
    with pytest.raises(InvalidTask, match="more than 512"):
        planned(group([take.s(1)]).using(idempotency_key="k" * 511))


def test_the_same_key_again_gives_the_run_that_is_there(app: Holdfast, take: Take) -> None:
    for name, workflow in {"chain": chain(take.s(1), take.then()), "group": group([take.s(1), take.s(2)])}.items():
        first = workflow.using(idempotency_key=name).enqueue()
        again = workflow.using(idempotency_key=name).enqueue()
        assert (first.created, again.created) == (True, False)
        assert again.id == first.id
        assert len(first.tasks()) == 2


def test_a_key_of_a_task_outside_of_runs_is_a_conflict(app: Holdfast, take: Take) -> None:
    take.using(idempotency_key="k").enqueue(1)
    with pytest.raises(IdempotencyConflict, match="of no run"):
        chain(take.s(1), take.then()).using(idempotency_key="k").enqueue()
    assert len(app.tasks.list()) == 1
