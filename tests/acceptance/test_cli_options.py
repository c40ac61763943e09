"""What holds for every command: where options may stand, which app and store they lead to, help, and exit codes."""

from __future__ import annotations

import shlex
import subprocess
import sys

import click
import pytest

from holdfast.cli.main import SECTIONS, main
from tests.acceptance.cli_driver import Cli, Ran

URL = "sqlite:///own.db"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--url", URL, "--json", "tasks", "list"],
        ["tasks", "--url", URL, "--json", "list"],
        ["tasks", "list", "--url", URL, "--json"],
        ["--json", "tasks", "list", "--url", URL],
        ["--url", URL, "tasks", "list", "--json"],
    ],
)
def test_url_and_json_are_accepted_before_and_after_the_command(cli: Cli, arguments: list[str]) -> None:
    added = cli("enqueue", "greet", "--url", URL, "--json").json
    ran = cli.process(*arguments)
    assert ran.code == 0
    assert ran.json["id"] == added["id"]


def test_app_is_accepted_before_and_after_the_command(cli: Cli) -> None:
    before = cli.process("--app", "shop:app", "enqueue", "shop.add", "1", "--json")
    after = cli.process("enqueue", "shop.add", "1", "--app", "shop:app", "--json")
    assert (before.code, after.code) == (0, 0)
    assert len(cli("tasks", "list", "--url", "sqlite:///shop.db", "--json").lines) == 2


def test_a_flag_wins_over_the_environment_and_that_over_the_default(cli: Cli) -> None:
    assert cli("enqueue", "a", "--url", URL, HOLDFAST_URL="sqlite:///environment.db").code == 0
    assert cli("enqueue", "b", HOLDFAST_URL="sqlite:///environment.db").code == 0
    ran = cli("enqueue", "c")
    assert "holdfast.db" in ran.err
    for file, name in (("own.db", "a"), ("environment.db", "b"), ("holdfast.db", "c")):
        assert [task["name"] for task in cli("tasks", "list", "--url", f"sqlite:///{file}", "--json").lines] == [name]


def test_the_app_of_the_environment_is_used_and_url_moves_it_to_another_store(cli: Cli) -> None:
    assert cli("enqueue", "shop.add", "1", "--url", URL, HOLDFAST_APP="shop:app").code == 0
    assert not (cli.folder / "shop.db").exists()
    (task,) = cli("tasks", "list", "--json", "--url", URL).lines
    assert task["name"] == "shop.add"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("shp:app", "did you mean 'shop'?"),
        ("shop:ap", "did you mean shop:app?"),
        ("shop:other", "is a str, not a Holdfast"),
        ("shop.py", "module:attribute"),
    ],
)
def test_an_app_that_cannot_be_found_is_a_usage_error_with_a_hint(cli: Cli, path: str, said: str) -> None:
    ran = cli("tasks", "list", "--app", path)
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_an_app_that_raises_is_named_and_debug_shows_where(cli: Cli) -> None:
    (cli.folder / "broken.py").write_text("import shop\n1 / 0\n")
    ran = cli("tasks", "list", "--app", "broken:app")
    assert ran.code == 1
    assert "ZeroDivisionError" in ran.err
    assert "Traceback" not in ran.err
    assert "broken.py" in cli("--debug", "tasks", "list", "--app", "broken:app").err


def test_an_unknown_command_is_a_usage_error_that_names_the_nearest(cli: Cli) -> None:
    ran = cli("taks")
    assert ran.code == 2
    assert "did you mean 'tasks'?" in ran.err
    assert "did you mean 'list'?" in cli("dlq", "lst").err


def test_an_unknown_option_is_a_usage_error(cli: Cli) -> None:
    ran = cli("tasks", "list", "--bogus")
    assert ran.code == 2
    assert "--bogus" in ran.err
    assert ran.out == ""


# Exit codes


def test_not_found_is_3_on_every_verb(cli: Cli) -> None:
    for verb in ("show", "why", "events", "cancel", "retry", "release", "delete", "watch"):
        ran = cli("tasks", verb, "no-such-id", "--url", URL)
        assert (verb, ran.code) == (verb, 3)
        assert ran.err.startswith("error: ")
        assert ran.out == ""


def test_a_refusal_by_state_is_4(cli: Cli) -> None:
    task_id = cli("enqueue", "greet", "--url", URL).out.strip()
    assert cli("tasks", "release", task_id, "--url", URL).code == 4
    assert cli("tasks", "delete", task_id, "--url", URL).code == 4


def test_a_conflict_of_idempotency_keys_is_4(cli: Cli) -> None:
    assert cli("enqueue", "one", "--idempotency-key", "k", "--url", URL).code == 0
    ran = cli("enqueue", "two", "--idempotency-key", "k", "--url", URL, "--json")
    assert ran.code == 4
    assert ran.error["code"] == "idempotency_conflict"


@pytest.mark.parametrize(
    "arguments",
    [
        ["enqueue", "greet", "--priority", "99999"],
        ["enqueue", "greet", "--delay", "5x"],
        ["enqueue", "greet", "--run-at", "2030-01-01T00:00:00"],
        ["enqueue", "greet", "--run-at", "soon"],
        ["enqueue", "greet", "--meta", "[1]"],
        ["enqueue", "greet", "--kw", "novalue"],
        ["enqueue", "bad\nname"],
        ["enqueue", "greet", "x" * (1 << 16), "--idempotency-key", "k" * 600],
        ["tasks", "list", "--status", "cancelled"],
        ["tasks", "list", "--limit", "0"],
        ["tasks", "list", "--after", "no-such-id"],
        ["tasks", "list", "--url", "nonsense"],
        ["dlq", "requeue"],
        ["dlq", "requeue", "some-id", "--all"],
        ["migrate", "--check", "--sql"],
        ["worker"],
    ],
)
def test_invalid_input_is_2_and_writes_nothing(cli: Cli, arguments: list[str]) -> None:
    ran = cli("--url", URL, *arguments)
    assert ran.code == 2, ran
    assert ran.err.startswith("error: ")
    assert ran.out == ""
    assert cli("tasks", "list", "--url", URL, "--json").lines == []


def test_a_store_that_cannot_be_reached_is_5(cli: Cli) -> None:
    ran = cli("tasks", "list", "--url", "sqlite:///no/such/folder/x.db")
    assert ran.code == 5
    assert ran.err.startswith("error: ")
    assert cli.process("worker", "--app", "shop:app", "--url", "sqlite:///no/such/folder/x.db").code == 5


def test_a_file_that_is_no_database_is_5_and_stays_as_it_was(cli: Cli) -> None:
    file = cli.folder / "own.db"
    file.write_text("this is not a database, and long enough to be looked at twice\n" * 100)
    before = file.read_bytes()
    ran = cli("tasks", "list", "--url", URL, "--json")
    assert ran.code == 5
    assert ran.error["code"] == "schema_mismatch"
    assert file.read_bytes() == before


def test_errors_in_json_have_code_and_message_on_stderr(cli: Cli) -> None:
    ran = cli("tasks", "show", "no-such-id", "--url", URL, "--json")
    assert ran.out == ""
    assert ran.error["code"] == "task_not_found"
    assert "no-such-id" in ran.error["message"]
    assert cli("tasks", "list", "--bogus", "--json").error["code"] == "usage"


# Help and colour


def _every_command() -> list[list[str]]:
    found: list[list[str]] = [[]]
    for section in SECTIONS.values():
        for name, (load, _) in section.items():
            command = load()
            found.append([name])
            if isinstance(command, click.Group):
                found.extend([name, child] for child in command.commands)
    return found


def test_every_help_starts_with_what_it_does_and_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for path in _every_command():
        assert main([*path, "--help"]) == 0
        shown = capsys.readouterr().out
        assert not shown.startswith("Usage"), path
        assert "Examples:\n  holdfast" in shown, path
        assert "--url URL" in shown, path


def test_examples_name_commands_and_options_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for path in _every_command():
        main([*path, "--help"])
        text = capsys.readouterr().out.split("Examples:\n", 1)[1].split("\n\n", 1)[0]
        for example in text.splitlines():
            _, *words = shlex.split(example)
            # With --help at the end every word before it is parsed, and nothing is done.
            assert main([*words, "--help"]) == 0, example
            assert capsys.readouterr().err == "", example


def test_python_m_holdfast_names_itself_holdfast(cli: Cli) -> None:
    assert "Usage: holdfast " in cli.process("--help").out
    assert cli.process("--version").out.startswith("holdfast")


def test_importing_holdfast_does_not_import_click(cli: Cli) -> None:
    probe = "import sys, holdfast; sys.exit('click' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=cli.folder).returncode == 0


def _colored(ran: Ran) -> bool:
    return "\x1b[" in ran.out


def test_colour_only_where_it_is_wanted(cli: Cli) -> None:
    cli("enqueue", "greet", "--url", URL)
    listing = ["tasks", "list", "--url", URL]
    assert not _colored(cli(*listing))
    assert _colored(cli(*listing, FORCE_COLOR="1"))
    assert not _colored(cli(*listing, FORCE_COLOR="1", NO_COLOR="1"))
    assert not _colored(cli.process(*listing, "--no-color", FORCE_COLOR="1"))
    assert not _colored(cli(*listing, "--json", FORCE_COLOR="1"))
