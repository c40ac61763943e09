"""`holdfast schedules`: what is shown of them, and acts on them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime, timedelta

import pytest

from holdfast import Holdfast
from tests.acceptance.cli_driver import Cli

URL = "sqlite:///own.db"
PLANNED = """
from holdfast import Holdfast

app = Holdfast("sqlite:///own.db")


@app.schedule("0 3 * * *", timezone="Europe/Zurich", missed="all", missed_most=7, jitter=30, args=[1])
@app.task(name="planned.nightly", queue="night")
async def nightly(days: int) -> int:
    return days
"""


@pytest.fixture
def planned(cli: Cli) -> Cli:
    """With one schedule that a worker has declared and one that was put there."""
    (cli.folder / "planned.py").write_text(PLANNED)
    assert cli.process("--app", "planned:app", "worker", "--until-idle").code == 0
    with Holdfast(f"sqlite:///{cli.folder}/own.db") as app:
        app.schedules.put("often", app.s("planned.nightly", "\x1b[31mred"), every=timedelta(minutes=5))
    return cli


def test_list_shows_when_each_is_next_here_there_and_in_words(planned: Cli) -> None:
    ran = planned("schedules", "list", "--url", URL)
    header, often, nightly = ran.out.splitlines()
    assert header.split() == ["SCHEDULE", "STATE", "NEXT", "THERE", "UTC", "DECLARED", "WHEN"]
    assert often.startswith("often")
    assert "by hand" in often
    assert often.endswith("every 5 m")
    assert nightly.startswith("planned.nightly")
    assert " 03:00:00 CE" in nightly
    assert nightly.endswith("0 3 * * *  Europe/Zurich")


def test_json_is_the_record_with_the_next_firing(planned: Cli) -> None:
    often, nightly = planned("schedules", "list", "--json", "--url", URL).lines
    assert (often["name"], often["declared_at"], often["timing"]["every"]) == ("often", None, 300.0)
    assert nightly["timing"]["cron"] == "0 3 * * *"
    assert nightly["task"]["payload"] == {"args": [1], "kwargs": {}}
    assert nightly["task"]["queue"] == "night"
    assert nightly["declared_at"].endswith("Z")
    assert datetime.fromisoformat(nightly["next_at"]) > datetime.fromisoformat(nightly["last_fired_at"])
    assert planned("schedules", "show", "often", "--json", "--url", URL).json == often


def test_show_gives_the_next_firings_in_both_times_and_obeys_no_text(planned: Cli) -> None:
    out = planned("schedules", "show", "planned.nightly", "--url", URL).out
    assert out.count(" 03:00:00 CE") == 5
    assert "all, 7 at most" in out
    assert "\x1b" not in planned("schedules", "show", "often", "--url", URL).out


def test_run_submits_a_task_now(planned: Cli) -> None:
    task_id = planned("schedules", "run", "planned.nightly", "--url", URL).out.strip()
    task = planned("tasks", "show", task_id, "--json", "--url", URL).json
    assert (task["name"], task["payload"]["args"], task["idempotency_key"]) == ("planned.nightly", [1], None)
    assert planned("schedules", "run", "planned.nightly", "--json", "--url", URL).json["created"] is True


def test_pause_and_resume_say_what_is_now(planned: Cli) -> None:
    assert planned("schedules", "pause", "often", "--url", URL).out == "schedule often is paused\n"
    (line,) = [line for line in planned("schedules", "list", "--url", URL).out.splitlines() if line.startswith("often")]
    assert line.split()[1:3] == ["paused", "-"]
    assert planned("schedules", "resume", "often", "--url", URL).out.startswith("schedule often is on; next ")
    paused = planned("schedules", "pause", "often", "--json", "--url", URL).json
    assert (paused["paused"], paused["next_at"]) == (True, None)


def test_delete_asks_and_says_what_comes_back(planned: Cli) -> None:
    ran = planned("schedules", "delete", "planned.nightly", "--url", URL)
    assert ran.code == 2
    assert "the next worker that starts brings it back" in ran.err
    assert planned("schedules", "delete", "often", "--yes", "--url", URL).out == "schedule often deleted\n"
    ran = planned("schedules", "delete", "planned.nightly", "--yes", "--json", "--url", URL)
    assert ran.json == {"name": "planned.nightly", "deleted": True}
    ran = planned("schedules", "list", "--url", URL)
    assert (ran.out, "no schedules" in ran.err) == ("", True)


def test_an_unknown_schedule_is_3_with_the_nearest_name(planned: Cli) -> None:
    for verb in ("show", "run", "pause", "resume", "delete"):
        ran = planned("schedules", verb, "oftne", "--url", URL)
        assert (verb, ran.code, ran.out) == (verb, 3, "")
        assert "did you mean 'often'?" in ran.err


def test_the_doctor_names_what_nobody_fires(planned: Cli) -> None:
    def findings() -> list[tuple[str, str]]:
        lines = planned("doctor", "--json", "--url", URL).lines
        return [(line["mark"], line["text"]) for line in lines if line["check"].startswith("schedule")]

    assert findings() == [("ok", "2 schedules, none overdue")]
    with closing(sqlite3.connect(planned.folder / "own.db")) as connection, connection:
        connection.execute("UPDATE holdfast_schedules SET last_fired_at = last_fired_at - 3 * 86400 * 1000000")
    assert [mark for mark, _ in findings()] == ["warn", "warn"]
    _, *lines = planned("schedules", "list", "--url", URL).out.splitlines()
    assert [line.split()[1] for line in lines] == ["overdue", "overdue"]
    often, nightly = (text for _, text in findings())
    assert "'often' was due 3 d ago; no worker runs" in often
    assert nightly.endswith("no worker runs whose code has it")
    planned("schedules", "pause", "often", "--url", URL)
    assert len(findings()) == 1


def test_help_shows_examples(cli: Cli) -> None:
    for verb in ("list", "show", "run", "pause", "resume", "delete"):
        assert f"holdfast schedules {verb}" in cli("schedules", verb, "--help").out
