"""How a run looks as text: what is drawn, what is folded, and that every line leads where it should."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Graph, Holdfast, chain, chord, group
from holdfast.calls import Call
from holdfast.cli.drawing import Line, drawing, spots


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


def told(line: Line) -> str:
    if line.spot is None:
        return line.drawn
    many = len(line.spot.tasks)
    return f"{line.drawn} {line.spot.tasks[0].name}" + (f" ×{many}" if many > 1 else "")


def drawn(workflow: Any) -> list[str]:
    return [told(line) for line in drawing(workflow.enqueue().tasks())]


def test_a_chain_is_a_line(app: Holdfast) -> None:
    assert drawn(chain(app.s("a"), app.then("b"), app.then("c"))) == ["○ a", "│", "○ b", "│", "○ c"]


def test_a_few_members_are_drawn_one_by_one(app: Holdfast) -> None:
    assert drawn(group([app.s("a"), app.s("a")])) == ["○ a", "○ a"]
    assert drawn(chord([app.s("a"), app.s("b"), app.s("c")], app.then("sum"))) == [
        "○ a",
        "│ ○ b",
        "├─╯",
        "│ ○ c",
        "├─╯",
        "○ sum",
    ]


def test_a_graph_is_drawn_with_its_branches(app: Holdfast) -> None:
    graph = Graph()
    page = graph.add(app.s("fetch"))
    words, links = graph.add(app.then("parse"), after=[page]), graph.add(app.then("index"), after=[page])
    graph.add(app.then("publish"), after=[words, links])
    graph.add(app.then("audit"), after=[words])
    assert drawn(graph) == [
        "○ fetch",
        "├─╮",
        "○ │ parse",
        "├─│─╮",
        "│ ○ │ index",
        "├─╯ │",
        "○   │ publish",
        "    ○ audit",
    ]


def test_what_is_alike_is_folded(app: Holdfast) -> None:
    assert drawn(chord([app.s("score")] * 1000, app.then("total"))) == ["○ score ×1000", "│", "○ total"]
    chains = [chain(app.s("fetch"), app.then("parse")) for _ in range(5)]
    assert drawn(group(chains)) == ["○ fetch ×5", "│", "○ parse ×5"]
    mixed = [*chains, chain(app.s("fetch"), app.then("other"))]
    assert drawn(group(mixed)) == ["○ fetch ×5", "│", "○ parse ×5", "○ fetch", "│", "○ other"]


def test_a_folded_line_shows_what_needs_attention_and_counts_the_rest(app: Holdfast) -> None:
    run = group([app.s("x")] * 6).enqueue()
    app.tasks.cancel(run.tasks()[0].id)
    (line,) = drawing(run.tasks())
    assert line.spot is not None
    assert (line.drawn, line.spot.status, line.spot.counts) == ("○", "queued", {"queued": 5, "canceled": 1})


def test_a_folded_line_stands_below_all_its_parents(app: Holdfast) -> None:
    """The second `a` is of another kind than the first, for its second child; their other children are alike."""
    graph = Graph()
    for number in range(5):
        a = graph.add(app.s("a"))
        graph.add(app.then("b"), after=[a])
        if number % 2:
            graph.add(app.then("c"), after=[a])
    found = spots(graph.enqueue().tasks())
    assert [spot.tasks[0].name for spot in found if len(spot.tasks) == 5] == ["b"]
    for place, spot in enumerate(found):
        assert all(parent < place for parent in spot.parents)


def test_what_is_too_wide_to_draw_is_told(app: Holdfast) -> None:
    graph = Graph()
    nodes = [graph.add(app.s(f"n{number}")) for number in range(20)]
    for number, node in enumerate(reversed(nodes)):
        graph.add(app.then(f"m{number}"), after=[node])
    lines = drawn(graph)
    assert lines[0] == "1 n0"
    assert lines[20] == "21 (after 20) m0"
    assert len(lines) == 40


def test_an_unknown_parent_is_left_out(app: Holdfast) -> None:
    run = chain(app.s("a"), app.then("b")).enqueue()
    assert [told(line) for line in drawing(run.tasks()[1:])] == ["○ b"]
    assert drawing([]) == []


@pytest.mark.parametrize("seed", range(30))
def test_every_line_leads_from_parents_to_children(app: Holdfast, seed: int) -> None:
    """Followed from sign to sign, the lines of a drawing are exactly the edges of the graph."""
    dice = random.Random(seed)
    graph, nodes = Graph(), list[Any]()
    for number in range(9):
        after = dice.sample(nodes, min(len(nodes), dice.randint(0, 2)))
        call: Call[Any] = app.s(str(number))
        nodes.append(graph.add(call, after=after))
    lines = drawing(graph.enqueue().tasks())
    found = [line.spot for line in lines if line.spot is not None]
    wanted = {(place, child) for place, spot in enumerate(found) for child in spot.children}
    assert followed(lines) == wanted


UP, DOWN, LEFT, RIGHT = set("│├┤┼╰╯┴"), set("│├┤┼╭╮┬"), set("─┤┼╯┴╮┬"), set("─├┼╰┴╭┬")
MARK = "○"


def followed(lines: list[Line]) -> set[tuple[int, int]]:
    """Pairs of places that the signs connect. A line that crosses another goes straight on."""
    width = max(len(line.drawn) for line in lines)
    rows = [line.drawn.ljust(width) for line in lines]
    place_of = {row: place for place, row in enumerate(at for at, line in enumerate(lines) if line.spot is not None)}
    pairs = set()
    for row in place_of:
        column = rows[row].index(MARK)
        pairs |= {(place_of[row], place_of[end]) for end in reached(rows, row, column)}
    return pairs


def reached(rows: list[str], row: int, column: int) -> set[int]:
    """The rows of the marks below this one. A line forks only in the row under a mark, where it may go sideways."""
    ends: set[int] = set()
    if row + 1 >= len(rows) or rows[row + 1][column] not in UP | {MARK}:
        return ends
    if rows[row + 1][column] == MARK:
        return ends
    columns = {column}
    for step, signs in ((2, RIGHT), (-2, LEFT)):
        at = column
        while 0 <= at < len(rows[row + 1]) and rows[row + 1][at] in signs | {"│"} and sideways(rows[row + 1], at, step):
            at += step
            if rows[row + 1][at] != "│":
                columns.add(at)
    for found in columns:
        if rows[row + 1][found] in DOWN:
            below = row + 2
            while rows[below][found] != MARK:
                below += 1
            ends.add(below)
    return ends


def sideways(row: str, at: int, step: int) -> bool:
    between = at + step // 2
    return 0 <= between < len(row) and row[between] == "─"
