"""The documents keep their word: code runs, links lead somewhere, commands exist.

Every Python block of a page runs, in order, as one script in an empty folder; its line numbers are those of the page.
A block that opens with a comment naming a file (`# tasks.py`) is saved under that name and imported instead.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holdfast.cli.main import root

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")],
    key=lambda page: page.relative_to(ROOT).as_posix(),
)
EXAMPLES = sorted(ROOT.glob("examples/*.py"))

FENCE = re.compile(r"^(```+)(.*)$")
FILE_NAME = re.compile(r"^# (\w+)\.py$")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
MACHINE_PATH = re.compile(r"(?<![\w.:/~-])/(?:home|root|Users|work|tmp|mnt|workspace)\b")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path) -> Iterator[tuple[str, int, list[str]]]:
    """Each fenced block: what stands after its fence, the number of its first line, its lines."""
    fence, info, first, body = "", "", 0, list[str]()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        match = FENCE.match(line)
        if not fence and match:
            fence, info, first, body = match[1], match[2].strip(), number + 1, []
        elif fence and line.strip() == fence:
            yield info, first, body
            fence = ""
        elif fence:
            body.append(line)
    assert not fence, f"{name_of(page)}: the block that opens before line {first} is never closed"


def prose(page: Path) -> list[str]:
    """The lines outside of blocks."""
    lines = page.read_text().splitlines()
    for _, first, body in blocks(page):
        lines[first - 2 : first + len(body)] = [""] * (len(body) + 2)
    return lines


def python_blocks(page: Path) -> list[tuple[int, list[str]]]:
    return [(first, body) for info, first, body in blocks(page) if info == "python"]


def write_script(page: Path, folder: Path) -> Path:
    lines = [""] * len(page.read_text().splitlines())
    for first, body in python_blocks(page):
        named = FILE_NAME.match(body[0])
        if named:
            (folder / f"{named[1]}.py").write_text("\n".join(body) + "\n")
            lines[first - 1] = f"import {named[1]}"
        else:
            lines[first - 1 : first - 1 + len(body)] = body
    script = folder / f"page_{page.stem.lower().replace('-', '_')}.py"
    script.write_text("\n".join(lines) + "\n")
    return script


def run_script(script: Path, folder: Path) -> None:
    unset = ("HOLDFAST_", "TASK_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(unset)}
    ran = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("page", [page for page in PAGES if python_blocks(page)], ids=name_of)
def test_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    run_script(write_script(page, tmp_path), tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=name_of)
def test_example_runs_and_ends(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 60, "an example fits on one screen"
    run_script(example, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_python_block_is_exempt_from_running(page: Path) -> None:
    languages = {info for info, _, _ in blocks(page)}
    known = {"python", "console", "text", "ini", "sql", "mermaid"}
    assert languages <= known, f"say what each block is, one of {sorted(known)}"


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = (line.lstrip("#").strip() for line in prose(page) if line.startswith("#"))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_internal_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall("\n".join(prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.exists(), f"{name_of(page)} links to {target}, which is not there"
        assert found.is_relative_to(ROOT), f"{name_of(page)} links to {target}, outside of the project"
        if anchor:
            assert anchor in anchors(found), f"{name_of(page)} links to {target}; that page has no such heading"


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command shown at a `$` prompt; an environment set in front of it is left out."""
    for info, _, body in blocks(page):
        if info == "console":
            for line in "\n".join(body).replace("\\\n", " ").splitlines():
                if line.startswith("$ "):
                    words = shlex.split(line[2:], comments=True)
                    while words and re.match(r"[A-Z_]+=", words[0]):
                        words.pop(0)
                    yield words


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_shown_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in commands(page):
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, f"there is no {words}"
        elif words[0] == "holdfast":
            check_command(words)


def check_command(words: list[str]) -> None:
    """Parsed by the command line itself, up to the point where it would act."""
    command: click.Command = root
    context = click.Context(root, info_name="holdfast")
    rest = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, f"there is no command {words}"
        command = found
        rest = rest[1:]
    command.make_context(words[1], rest, parent=context)


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=name_of)
def test_nothing_points_at_one_machine(page: Path) -> None:
    assert not MACHINE_PATH.search(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_readable_in_an_editor(page: Path) -> None:
    too_long = [line for line in prose(page) if len(line) > 120 and not line.startswith("|")]
    assert not too_long, f"longer than 120 characters: {too_long}"


def test_there_are_pages_and_examples() -> None:
    assert len(PAGES) > 10
    assert len(EXAMPLES) >= 3
