"""Ours and the rivals side by side: one after another on the same servers, each as it was fastest on such a machine.

`python -m bench.rivals.run [--json FILE] [--quick] [--only NAME]…`. What a machine lacks is said, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from bench import on_postgres
from bench.rivals.contest import Missing, Rival, contest, prepare
from holdfast.bench.drain import drain
from holdfast.bench.snapshot import WINDOW_SECONDS, snapshot
from holdfast.version import __version__

OURS = "Holdfast"
TASKS = 200_000
SNAPSHOT_SECONDS = 60.0
RIVALS = [
    Rival(
        "PgQueuer",
        ("pgqueuer[asyncpg]", "uvloop"),
        processes=2,
        tasks=TASKS,
        setting="PostgreSQL, 2 processes, batch 500, uvloop",
        open_sql="SELECT EXISTS (SELECT FROM pgqueuer WHERE status = 'queued') OR EXISTS (SELECT FROM pgqueuer)",
    ),
    Rival("awa", ("awa-pg",), processes=1, tasks=TASKS, setting="PostgreSQL, 1 process, 1,024 at once"),
    Rival(
        "Procrastinate",
        ("procrastinate", "psycopg[binary,pool]"),
        processes=2,
        tasks=5_000,
        setting="PostgreSQL, 2 processes, 15 at once",
        open_sql="SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))",
    ),
    Rival(
        "Celery",
        ("celery[redis]",),
        processes=2,
        tasks=20_000,
        setting="Redis, 2 processes, solo pool",
        open_keys=("LLEN bench", "HLEN unacked"),
    ),
    Rival(
        "Dramatiq",
        ("dramatiq[redis]",),
        processes=2,
        tasks=20_000,
        setting="Redis, 2 processes, 16 threads",
        open_keys=("HLEN dramatiq:bench.msgs",),
    ),
]
TARGETS = {"PgQueuer": 1.2, "awa": 3.0, "Celery": 5.0, "Dramatiq": 5.0, "Procrastinate": 20.0}
SNAPSHOT_TARGETS = {"PgQueuer": 3.0}
UNDER_SNAPSHOT = ("PgQueuer", "awa")


class Line(NamedTuple):
    name: str
    version: str
    setting: str
    drain_per_s: float
    first_per_s: float | None = None
    """Under a held snapshot, at its beginning and at its end."""
    last_per_s: float | None = None


def main() -> None:
    options = _options()
    share = 10 if options.quick else 1
    lines = []
    for name in options.only or [OURS, *(rival.name for rival in RIVALS)]:
        print(f"{name} …", flush=True)
        try:
            if name == OURS:
                lines += [_ours(processes, share) for processes in (1, 2)]
            else:
                lines.append(_rival(next(rival for rival in RIVALS if rival.name == name), share))
        except Missing as missing:
            print(f"  left out: {missing}", flush=True)
    print(f"\n{table(lines)}")
    for verdict in verdicts(lines):
        print(verdict)
    if options.json:
        options.json.write_text(json.dumps([line._asdict() for line in lines], indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.rivals.run", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, for a first look")
    names = [OURS, *(rival.name for rival in RIVALS)]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    return parser.parse_args()


def _snapshot_seconds(share: int) -> tuple[float, float]:
    """How long it is held, and how long the windows at both ends are."""
    seconds = SNAPSHOT_SECONDS if share == 1 else SNAPSHOT_SECONDS / 4
    return seconds, min(WINDOW_SECONDS, seconds / 3)


def _ours(processes: int, share: int) -> Line:
    tasks, (seconds, _) = TASKS // share, _snapshot_seconds(share)
    drained = on_postgres.on_server(lambda url: drain(url, tasks=tasks, processes=processes, floor=False))
    held = on_postgres.on_server(lambda url: snapshot(url, seconds=seconds, queued=tasks, processes=processes))
    setting = f"PostgreSQL, {processes} process{'es' if processes > 1 else ''}, 100 at once"
    return Line(OURS, __version__, setting, drained.tasks_per_s, held.first_per_s, held.last_per_s)


def _rival(rival: Rival, share: int) -> Line:
    version = prepare(rival)
    with contest(rival) as running:
        rate = running.drained(rival.tasks // share)
    first = last = None
    if rival.name in UNDER_SNAPSHOT:
        with contest(rival) as running:
            seconds, window = _snapshot_seconds(share)
            first, last = running.under_snapshot(seconds, TASKS // share, window)
    return Line(rival.name, version, rival.setting, round(rate), first and round(first), last and round(last))


def table(lines: list[Line]) -> str:
    rows = ["| | setting | drain | held snapshot: first → last |", "|---|---|---|---|"]
    for line in lines:
        held = "" if line.first_per_s is None else f"{line.first_per_s:,.0f} → {line.last_per_s:,.0f}"
        rows.append(f"| {line.name} {line.version} | {line.setting} | {line.drain_per_s:,.0f} | {held} |")
    return "\n".join(rows)


def verdicts(lines: list[Line]) -> list[str]:
    """How many times as fast as each rival, beside the target."""
    ours = [line for line in lines if line.name == OURS]
    if not ours:
        return []
    said = []
    for line in lines:
        if line.name in TARGETS:
            said.append(
                _verdict(line.name, max(one.drain_per_s for one in ours) / line.drain_per_s, TARGETS[line.name])
            )
        if line.name in SNAPSHOT_TARGETS and line.last_per_s:
            times = max(one.last_per_s or 0 for one in ours) / line.last_per_s
            said.append(_verdict(f"{line.name} at the end of a held snapshot", times, SNAPSHOT_TARGETS[line.name]))
    return said


def _verdict(name: str, times: float, target: float) -> str:
    return f"{times:6.1f} x {name}, target {target:g}: {'met' if times >= target else 'MISSED'}"


if __name__ == "__main__":
    main()
