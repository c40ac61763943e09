"""The demo ends by itself, shows what it promises, and leaves nothing behind unless it is asked to."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

from tests.acceptance.cli_driver import Cli


def test_the_demo_shows_states_retries_dead_letter_and_duplicates(cli: Cli) -> None:
    ran = cli.process("demo", TMPDIR=str(cli.folder))
    assert ran.code == 0, ran
    for word in (
        "completed 2,038", "failed 1", "retries", "dead letter", "cannot parse", "made 1 task", "per second",
        "7 tasks completed: 17 words on 5 pages", "6 tasks, 2 at once where 2 may",
        "demo-words version 5: 5 rows",
    ):  # fmt: skip
        assert word in ran.out
    assert "try next:" in ran.out
    assert "again in" in ran.err
    assert "\x1b" not in ran.out + ran.err
    assert sorted(path.name for path in cli.folder.iterdir() if "demo" in path.name) == []


def test_the_demo_in_json_is_one_object_and_its_file_can_be_kept(cli: Cli) -> None:
    ran = cli.process("demo", "--keep", "--json", TMPDIR=str(cli.folder))
    assert ran.code == 0, ran
    summary = ran.json
    assert (summary["ok"], summary["problems"], summary["retries"]) == (True, [], 4)
    assert summary["counts"]["completed"] == 2038
    assert (summary["workflow"]["status"], summary["workflow"]["result"]) == ("completed", "17 words on 5 pages")
    assert (summary["limit"]["tasks"], summary["limit"]["most_at_once"]) == (6, 2)
    assert summary["dataset"] == {"name": "demo-words", "version": 5, "rows": 5}
    assert summary["duplicates"]["submitted"] == 3
    assert summary["duplicates"]["created"] == 1
    assert summary["burst"]["tasks_per_s"] > 0
    (file,) = cli.folder.glob("holdfast-demo-*/demo.db")
    (dead,) = cli("dlq", "list", "--url", f"sqlite:///{file}", "--json").lines
    assert dead["id"] == summary["dead_letters"][0]["id"]


def test_the_demo_can_run_twice_on_one_store(cli: Cli) -> None:
    for _ in range(2):
        assert cli.process("demo", "--url", "sqlite:///own.db").code == 0
    assert len(cli("dlq", "list", "--url", "sqlite:///own.db", "--json").lines) == 2


def test_the_demo_runs_the_same_through_a_dispatcher(cli: Cli) -> None:
    ran = cli.process("demo", "--dispatcher", "--json", TMPDIR=str(cli.folder))
    assert ran.code == 0, ran
    assert (ran.json["ok"], ran.json["counts"]["completed"]) == (True, 2038)
    assert ran.json["store"].startswith("http://127.0.0.1:")
    assert "hf_" not in ran.out + ran.err
    assert sorted(path.name for path in cli.folder.iterdir() if "demo" in path.name) == []


def test_tasks_in_memory_cannot_be_dispatched_by_another_process(cli: Cli) -> None:
    assert cli("demo", "--dispatcher", "--url", "memory://x").code == 2


def test_on_a_terminal_the_demo_rewrites_its_last_line(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "demo", "--url", "memory://x"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = _everything(ours)
    assert process.wait(30) == 0
    assert b"\r\x1b[K" in shown
    assert b"scheduled 1" in shown
    assert b"try next:" in shown


def _everything(terminal: int) -> bytes:
    """What is written to a terminal until its last writer has gone."""
    shown = b""
    while select.select([terminal], [], [], 30)[0]:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not read:
            break
        shown += read
    os.close(terminal)
    return shown
