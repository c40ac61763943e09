"""What a checker sees: `enqueue` takes exactly the function's parameters, a handle knows the type of its result.

right.txt must pass `mypy --strict`; wrong.txt must fail on exactly the lines marked `# E: codes`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = HERE.parent.parent


def test_right_uses_pass_and_every_wrong_one_is_reported(tmp_path: Path) -> None:
    found = errors(tmp_path)
    marked = {
        number: set(line.split("# E: ")[1].split())
        for number, line in enumerate((HERE / "wrong.txt").read_text().splitlines(), start=1)
        if "# E: " in line
    }
    assert len(marked) >= 16
    assert found["right"] == {}
    assert found["wrong"] == marked


def errors(folder: Path) -> dict[str, dict[int, set[str]]]:
    """Error codes by file and line, of one run over both files."""
    for name in ("right", "wrong"):
        (folder / f"{name}.py").write_text((HERE / f"{name}.txt").read_text())
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
