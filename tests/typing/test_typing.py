"""What checkers see: `enqueue` takes exactly the function's parameters, a handle and a run know their result's type, a
step of a workflow accepts what the one before it gives.

right.txt must pass `mypy --strict` and pyright; wrong.txt must fail on exactly the lines marked `# E: codes`, which are
mypy's.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("right", "wrong"):
        (tmp_path / f"{name}.py").write_text((HERE / f"{name}.txt").read_text())
    return tmp_path


def marked() -> dict[int, set[str]]:
    found = {
        number: set(line.split("# E: ")[1].split())
        for number, line in enumerate((HERE / "wrong.txt").read_text().splitlines(), start=1)
        if "# E: " in line
    }
    assert len(found) >= 40
    return found


def test_mypy_passes_right_uses_and_reports_every_wrong_one(folder: Path) -> None:
    found = mypy_errors(folder)
    assert found["right"] == {}
    assert found["wrong"] == marked()


def test_pyright_passes_right_uses_and_reports_every_wrong_one(folder: Path) -> None:
    found = pyright_errors(folder)
    assert found["right"] == {}
    assert set(found["wrong"]) == set(marked())


def mypy_errors(folder: Path) -> dict[str, dict[int, set[str]]]:
    """Error codes by file and line, of one run over both files."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", ""]
    command += ["--cache-dir", str(folder / "cache"), str(folder / "right.py"), str(folder / "wrong.py")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT / "src")
    assert ran.returncode in (0, 1), ran.stderr
    found: dict[str, dict[int, set[str]]] = {"right": defaultdict(set), "wrong": defaultdict(set)}
    for line in ran.stdout.splitlines():
        if match := re.search(r"(right|wrong)\.py:(\d+): error: .*\[([a-z-]+)\]$", line):
            found[match[1]][int(match[2])].add(match[3])
        else:
            assert "error:" not in line, line
    return found


def pyright_errors(folder: Path) -> dict[str, dict[int, list[str]]]:
    """Messages by file and line."""
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    ran = subprocess.run([*command, str(folder / "right.py"), str(folder / "wrong.py")], capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr
    found: dict[str, dict[int, list[str]]] = {"right": defaultdict(list), "wrong": defaultdict(list)}
    for told in msgspec.json.decode(ran.stdout)["generalDiagnostics"]:
        if told["severity"] == "error":
            found[Path(told["file"]).stem][told["range"]["start"]["line"] + 1].append(told["message"])
    return found
