"""Datasets on the command line: listed, shown as a table or as lines of JSON, and never obeyed by a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Context, Holdfast
from holdfast.model.output import DatasetInfo, DatasetVersion
from tests.acceptance.cli_driver import Cli


@pytest.fixture
def app(cli: Cli) -> Iterator[Holdfast]:
    """The shop's store, with a task that writes."""
    with Holdfast(f"sqlite:///{cli.folder / 'shop.db'}") as opened:

        @opened.task(name="write", takes_context=True)
        def write(ctx: Context, dataset: str, rows: list[list[Any]], mode: Any) -> None:
            ctx.output(dataset, ((key, value) for key, value in rows), mode=mode)

        yield opened


def written(app: Holdfast, dataset: str, rows: dict[str, Any], mode: str = "append") -> str:
    handle = app.enqueue("write", dataset, [list(pair) for pair in rows.items()], mode)
    app.worker(poll_interval=0.01).run(until_idle=True)
    return handle.id


def test_list_shows_each_dataset_with_its_latest_version(cli: Cli, app: Holdfast) -> None:
    empty = cli.app("datasets", "list")
    assert (empty.code, empty.out) == (0, "")
    assert "ctx.output" in empty.err
    written(app, "orders", {"a": 1, "b": 2})
    written(app, "orders", {"c": 3})
    written(app, "lines", {}, "replace")
    shown = cli.app("datasets", "list")
    assert [line.split()[:3] for line in shown.out.splitlines()] == [
        ["DATASET", "LATEST", "ROWS"],
        ["lines", "1", "0"],
        ["orders", "2", "3"],
    ]
    assert "2 versions" in shown.out
    records = cli.app("datasets", "list", "--json").lines
    assert set(records[0]) == set(DatasetInfo.__struct_fields__)
    assert [(record["latest"]["dataset"], record["versions"]) for record in records] == [("lines", 1), ("orders", 2)]
    assert cli.app("datasets", "list", "--after", "lines", "--limit", "1", "--json").json["latest"]["version"] == 2
    assert "--after lines" in cli.app("datasets", "list", "--limit", "1").err


def test_show_prints_the_rows_of_a_version(cli: Cli, app: Holdfast) -> None:
    task_id = written(app, "orders", {"b": {"total": 3}, "a": None})
    written(app, "orders", {"c": [1.5]})
    first = cli.app("datasets", "show", "orders", "--version", "1").out.splitlines()
    assert [line.split("  ")[0] for line in first[:6]] == ["dataset", "uuid", "version", "rows", "written", "by task"]
    assert first[5].endswith(task_id)
    assert [line.split() for line in first[7:]] == [["KEY", "VALUE"], ["a", "null"], ["b", '{"total":3}']]
    latest = cli.app("datasets", "show", "orders")
    assert "3, of which 1 came with this version (append)" in latest.out
    assert latest.out.splitlines()[-1].split() == ["c", "[1.5]"]


def test_show_prints_lines_of_json(cli: Cli, app: Holdfast) -> None:
    written(app, "orders", {f"k{number}": number for number in range(5)})
    shown = cli.app("datasets", "show", "orders", "--json").lines
    assert shown == [{"key": f"k{number}", "value": number} for number in range(5)]
    page = cli.app("datasets", "show", "orders", "--limit", "2", "--after", "k1", "--json").lines
    assert [row["key"] for row in page] == ["k2", "k3"]
    assert "--version 1 --after k1" in cli.app("datasets", "show", "orders", "--limit", "2").err
    assert cli.app("--json", "datasets", "show", "orders", "--version", "1", "--limit", "1").json["key"] == "k0"


def test_show_lists_the_versions(cli: Cli, app: Holdfast) -> None:
    for number in range(3):
        written(app, "orders", {f"k{number}": number})
    shown = cli.app("datasets", "show", "orders", "--versions").out.splitlines()
    assert [line.split()[:4] for line in shown[1:]] == [[str(n), "append", str(n), "1"] for n in (3, 2, 1)]
    records = cli.app("datasets", "show", "orders", "--versions", "--version", "2", "--json").lines
    assert set(records[0]) == set(DatasetVersion.__struct_fields__)
    assert [record["version"] for record in records] == [2, 1]
    versions = ("datasets", "show", "orders", "--versions", "--limit")
    assert cli.app(*versions, "2").err.splitlines()[-1:] == ["there may be more: --version 1"]
    assert cli.app(*versions, "3").err == "", "there is nothing before the first"


def test_what_is_not_there_is_exit_code_3(cli: Cli, app: Holdfast) -> None:
    written(app, "orders", {"a": 1})
    for arguments in (("nothing",), ("orders", "--version", "2"), ("nothing", "--versions")):
        ran = cli.app("datasets", "show", *arguments, "--json")
        assert (ran.code, ran.out, ran.error["code"]) == (3, "", "dataset_not_found")
    assert cli.app("datasets", "show", "orders", "--version", "0").code == 2


def test_nothing_in_a_dataset_reaches_the_terminal_unescaped(cli: Cli, app: Holdfast) -> None:
    evil = "\u202eevil\u2066"
    written(app, f"d{evil}", {f"k{evil}": ["\x1b[2J\x07\r\n", evil, {"\x9b31m": "\u2028"}]})
    for arguments in (
        ("list",),
        ("list", "--json"),
        ("list", "--limit", "1"),
        ("show", f"d{evil}"),
        ("show", f"d{evil}", "--limit", "1"),
        ("show", f"d{evil}", "--json"),
        ("show", f"d{evil}", "--versions"),
        ("show", f"no{evil}"),
    ):
        ran = cli.app("datasets", *arguments)
        assert (ran.out + ran.err).replace("\n", "").isprintable(), arguments
    value = cli.app("datasets", "show", f"d{evil}", "--json").json["value"]
    assert value == ["\x1b[2J\x07\r\n", evil, {"\x9b31m": "\u2028"}], "a program gets it whole"
