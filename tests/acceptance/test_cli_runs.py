"""Runs on the command line: listed, drawn, canceled; and why a task of one waits or was canceled."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from holdfast import Graph, Holdfast, Run, Task, chain, chord, group
from holdfast.model.workflow import RunInfo
from tests.acceptance.cli_driver import Cli


@pytest.fixture
def app(cli: Cli) -> Holdfast:
    """The shop's store, for workflows of these tests; its tasks are known by name."""
    return Holdfast(f"sqlite:///{cli.folder / 'shop.db'}")


def diamond(app: Holdfast) -> Run[object]:
    graph = Graph()
    first = graph.add(app.s("shop.add", 1))
    left, right = graph.add(app.then("shop.add"), after=[first]), graph.add(app.then("shop.add", 5), after=[first])
    graph.add(app.then("shop.add"), after=[left, right])
    with app:
        return graph.enqueue()


def test_show_draws_the_graph_with_states_and_durations(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    before = cli.app("runs", "show", run.id)
    assert before.code == 0, before.err
    assert [line.split("  ")[0] for line in before.out.splitlines()[6:]] == [
        "TASK",
        "○ shop.add",
        "├─╮",
        "○ │ shop.add",
        "│ ○ shop.add",
        "├─╯",
        "○ shop.add",
    ]
    assert "1 queued, 3 waiting" in before.out or "3 waiting, 1 queued" in before.out
    cli.drain()
    after = cli.app("runs", "show", run.id).out
    with app:
        tasks = run.tasks()
        assert run.result(timeout=1) == 7
    assert f"run      {run.id}" in after
    lines = {task.id: next(line for line in after.splitlines() if line.endswith(task.id)) for task in tasks}
    for line in lines.values():
        assert "●" in line
        assert " completed  " in line
        assert " s  " in line


def test_show_folds_a_large_group(cli: Cli, app: Holdfast) -> None:
    with app:
        run = chord((app.s("shop.add", number) for number in range(3000)), app.then("shop.steps")).enqueue()
        app.tasks.cancel(run.tasks()[0].id)
    ran = cli.app("runs", "show", run.id)
    assert len(ran.out.splitlines()) == 10
    assert "○ shop.add ×3,000  queued" in ran.out
    assert "2,999 queued, 1 canceled" in ran.out


def test_show_prints_the_run_and_its_tasks_as_json(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    shown = cli.app("runs", "show", run.id, "--json").json
    assert set(shown) == {"run", "tasks"}
    assert set(shown["run"]) == set(RunInfo.__struct_fields__)
    assert (shown["run"]["id"], shown["run"]["status"]) == (run.id, "running")
    assert set(shown["tasks"][0]) == set(Task.__struct_fields__)
    assert [len(task["parents"]) for task in shown["tasks"]] == [0, 1, 1, 2]


def test_show_fits_a_terminal_of_80_columns(cli: Cli, app: Holdfast) -> None:
    name = "a.very.long.package.of.someone.module.handler"
    with app:
        run = chain(app.s(name), group([app.then("left"), app.then("right")]), app.then(name)).enqueue()
    shown = on_a_terminal(cli, 80, "--url", "sqlite:///shop.db", "runs", "show", run.id)
    assert max(len(line) for line in shown.split("TASK")[1].splitlines()) <= 80
    table = shown.split("TASK")[1].split("why nothing of it runs")[0].splitlines()
    assert sum(line.rstrip().endswith(task.id) for line in table for task in records(app, run)) == 4
    assert "module.handler" in shown


def records(app: Holdfast, run: Run[object]) -> list[Task]:
    with app:
        return run.tasks()


def on_a_terminal(cli: Cli, columns: int, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    environment = cli.environment | {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "holdfast", *arguments]
    with subprocess.Popen(command, cwd=cli.folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as ran:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the far side has closed it
                break
            if not part:
                break
            shown += part
    os.close(ours)
    assert ran.returncode == 0, shown
    return shown.decode()


def test_nothing_a_run_holds_reaches_the_terminal_unescaped(cli: Cli, app: Holdfast) -> None:
    with app:
        app.using(run_id="r" + "\u202e").enqueue("x\u202e end")
    for arguments in (("runs", "list"), ("runs", "show", "r\u202e"), ("runs", "show", "r\u202e", "--json")):
        ran = cli.app(*arguments)
        assert ran.code == 0, ran.err
        assert "\u202e" not in ran.out


def test_list_shows_runs_newest_first_in_pages(cli: Cli, app: Holdfast) -> None:
    made = [diamond(app).id for _ in range(3)]
    listed = cli.app("runs", "list", "--limit", "2", "--json").lines
    assert [info["id"] for info in listed] == [made[2], made[1]]
    assert [info["id"] for info in cli.app("runs", "list", "--after", made[1], "--json").lines] == [made[0]]
    for_people = cli.app("runs", "list", "--limit", "2")
    assert made[2] in for_people.out
    assert "running" in for_people.out
    assert f"--after {made[1]}" in for_people.err


def test_list_without_runs_says_so(cli: Cli) -> None:
    ran = cli.app("runs", "list")
    assert (ran.code, ran.out) == (0, "")
    assert "no runs yet" in ran.err


def test_cancel_ends_what_has_not_ended(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    ran = cli.app("runs", "cancel", run.id)
    assert ran.out == f"run {run.id} is canceled: 4 tasks canceled, or asked to stop\n"
    assert cli.app("runs", "cancel", run.id, "--json").json == {"id": run.id, "status": "canceled", "changed": 0}
    assert "nothing was left to cancel" in cli.app("runs", "cancel", run.id).out


@pytest.mark.parametrize("command", ["show", "cancel"])
def test_an_unknown_run_is_not_found(cli: Cli, command: str) -> None:
    ran = cli.app("runs", command, "nowhere", "--json")
    assert ran.code == 3
    assert ran.error["code"] == "run_not_found"


def test_why_names_the_parents_that_a_task_waits_for(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    first, left, right, last = (task.id for task in records(app, run))
    answer = cli.app("tasks", "why", last, "--json").json
    assert answer["reason"] == "waiting"
    assert "It waits for 2 parents to end, of 2: " in answer["text"]
    assert f"{left} (shop.add, waiting)" in answer["text"]
    assert f"{right} (shop.add, waiting)" in answer["text"]
    assert answer["command"] in (f"holdfast tasks why {left}", f"holdfast tasks why {right}")
    assert first in cli.app("tasks", "why", left).out


def test_why_goes_up_to_the_task_that_holds_all_the_others_up(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    first, *_, last = (task.id for task in records(app, run))
    cli.app("queues", "pause", "default")
    (why_first,) = cli.app("tasks", "why", last, "--json").json["also"]
    assert why_first["reason"] == "paused"
    assert first in why_first["text"]
    assert why_first["command"] == "holdfast queues resume default"


def test_show_says_what_to_do_about_a_run_that_does_not_go_on(cli: Cli, app: Holdfast) -> None:
    run = diamond(app)
    assert cli.app("runs", "show", run.id).err.endswith(f"holdfast tasks why {records(app, run)[0].id}\n")
    with app:
        broken = chain(app.using(max_attempts=1).s("shop.fail", "broken"), app.then("shop.add")).enqueue()
    cli.drain()
    assert cli.app("runs", "show", run.id).err == ""
    assert cli.app("runs", "show", broken.id).err.endswith(f"holdfast tasks retry {records(app, broken)[0].id}\n")


def test_why_names_what_a_task_was_canceled_because_of(cli: Cli, app: Holdfast) -> None:
    with app:
        run = chain(
            app.using(max_attempts=1).s("shop.fail", "broken"), app.then("shop.add"), app.then("shop.add")
        ).enqueue()
    cli.drain()
    first, _, last = (task.id for task in records(app, run))
    answer = cli.app("tasks", "why", last, "--json").json
    assert answer["reason"] == "canceled"
    assert f"because of {first} (shop.fail), which is failed: " in answer["text"]
    assert "broken" in answer["text"]
    assert answer["command"] == f"holdfast tasks retry {first}"


def test_help_shows_each_command_in_use(cli: Cli) -> None:
    assert "runs" in cli("--help").out
    for command in ("list", "show", "cancel"):
        assert f"holdfast runs {command}" in cli("runs", command, "--help").out
