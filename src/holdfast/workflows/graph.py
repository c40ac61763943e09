"""Any order between tasks that has no cycle: each node names the nodes before it.

graph = Graph()
page = graph.add(fetch.s(url))
words = graph.add(parse.then(), after=[page])
links = graph.add(index.then(), after=[page])
graph.add(publish.then(), after=[words, links])         # gets both results, in this order
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar, Unpack, overload

import msgspec

from holdfast.calls import Step, Then, Then2, Then3, Then4, Whole
from holdfast.errors import CycleError, InvalidTask
from holdfast.workflows.order import parents_first
from holdfast.workflows.plan import Before, How, Manner, OnParentFailure, Output, Plan, Ways, gathered
from holdfast.workflows.workflow import Workflow

R = TypeVar("R", covariant=True)
A = TypeVar("A")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
B = TypeVar("B")
NAMES_SHOWN = 10


class Node(Generic[R]):
    """A place in a graph, for others to name."""

    __slots__ = ("_graph", "_place")

    def __init__(self, graph: Graph, place: int) -> None:
        self._graph = graph
        self._place = place

    def place_in(self, graph: Graph) -> int:
        if graph is not self._graph:
            raise InvalidTask(f"{self!r} is a node of another graph; add its step to this one")
        return self._place

    def __repr__(self) -> str:
        return f"<Node {self._place} of a graph>"


class _Added(msgspec.Struct, frozen=True):
    step: Step[Any, Any]
    after: tuple[int, ...]
    manner: Manner


class Graph(Workflow[Any]):
    """Grows by `add`; can be submitted as often as wanted, and can stand as a step in another workflow.

    It gives what its last nodes give: those that no other waits for; a list where they are several.
    """

    def __init__(self, *, on_parent_failure: OnParentFailure | None = None, fail_fast: bool = False) -> None:
        self._manner = Manner(on_parent_failure, fail_fast)
        self._nodes: list[_Added] = []
        self._edges: list[tuple[int, int]] = []

    @overload
    def add(self, step: Whole[A], *, after: Iterable[Node[Any]] = (), **how: Unpack[How]) -> Node[A]: ...
    @overload
    def add(self, step: Step[A, B], *, after: list[Node[A]] | tuple[Node[A]], **how: Unpack[How]) -> Node[B]: ...
    @overload
    def add(
        self, step: Then2[A, A2, B], *, after: list[Node[Any]] | tuple[Node[A], Node[A2]], **how: Unpack[How]
    ) -> Node[B]: ...
    @overload
    def add(
        self,
        step: Then3[A, A2, A3, B],
        *,
        after: list[Node[Any]] | tuple[Node[A], Node[A2], Node[A3]],
        **how: Unpack[How],
    ) -> Node[B]: ...
    @overload
    def add(
        self,
        step: Then4[A, A2, A3, A4, B],
        *,
        after: list[Node[Any]] | tuple[Node[A], Node[A2], Node[A3], Node[A4]],
        **how: Unpack[How],
    ) -> Node[B]: ...
    def add(
        self,
        step: Any,
        *,
        after: Iterable[Node[Any]] = (),
        on_parent_failure: OnParentFailure | None = None,
        fail_fast: bool = False,
    ) -> Any:
        """Add a call or a whole workflow, to run after these nodes. `then` takes their results, in this order; a tuple
        is checked position by position.

        With `fail_fast`, the nodes of this graph that have it end together: one that fails takes the others with it.
        """
        places = tuple(self._place(node) for node in after)
        if len(set(places)) < len(places):
            raise InvalidTask("a node stands twice in after=[…]; its result is handed over once")
        if isinstance(step, Then):
            if not places:
                raise InvalidTask(f"{step.name}.then(…) takes the results of other nodes; name them with after=[…]")
            step.check(len(places))
        self._nodes.append(_Added(step, places, Manner(on_parent_failure, fail_fast)))
        return Node(self, len(self._nodes) - 1)

    def edge(self, first: Node[Any], then: Node[Any]) -> None:
        """`then` also waits for `first`, and takes nothing from it. The two may have been added in any order."""
        self._edges.append((self._place(first), self._place(then)))

    def _place(self, node: Node[Any]) -> int:
        if not isinstance(node, Node):
            raise TypeError(f"a graph's edges are between nodes, as add() gives them, not {type(node).__name__}")
        return node.place_in(self)

    def lay(self, plan: Plan, before: Before, ways: Ways) -> Output:
        if not self._nodes:
            raise InvalidTask("the graph has no nodes; add(…) some")
        own = plan.ways(self._manner, ways)
        fast = plan.ways(Manner(None, True), own) if any(node.manner.fail_fast for node in self._nodes) else own
        waits: list[list[int]] = [[] for _ in self._nodes]
        for first, then in self._edges:
            waits[then].append(first)
        outputs: dict[int, Output] = {}
        for place in self._order():
            node = self._nodes[place]
            after = [outputs[parent] for parent in node.after]
            others = [outputs[parent] for parent in waits[place]]
            found = Before(after, others) if after or others else before
            around = fast if node.manner.fail_fast else own
            outputs[place] = plan.place(node.step, found, plan.ways(Manner(node.manner.on_parent_failure), around))
        followed = {parent for node in self._nodes for parent in node.after} | {first for first, _ in self._edges}
        last = [output for place, output in outputs.items() if place not in followed]
        return last[0] if len(last) == 1 else gathered(last, before)

    def _order(self) -> list[int]:
        """Parents first, else as they were added; CycleError."""
        children: list[list[int]] = [[] for _ in self._nodes]
        for place, node in enumerate(self._nodes):
            for parent in node.after:
                children[parent].append(place)
        for first, then in self._edges:
            children[first].append(then)
        order = parents_first(children)
        if len(order) < len(self._nodes):
            raise CycleError(f"the graph has a cycle: {self._shown(self._cycle(children, set(order)))}")
        return order

    def _cycle(self, children: Sequence[Sequence[int]], ordered: set[int]) -> list[int]:
        """Who is left has a parent that is left: going up comes around."""
        parents = {child: place for place, found in enumerate(children) if place not in ordered for child in found}
        place = next(place for place in range(len(self._nodes)) if place not in ordered)
        seen: list[int] = []
        while place not in seen:
            seen.append(place)
            place = parents[place]
        return [place, *reversed(seen[seen.index(place) :])]

    def _shown(self, places: Sequence[int]) -> str:
        names = [f"{getattr(self._nodes[place].step, 'name', 'a workflow')} (node {place})" for place in places]
        return " → ".join(names if len(names) <= NAMES_SHOWN else [*names[:NAMES_SHOWN], "…"])
