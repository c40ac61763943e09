"""Prints every figure that the project promises, beside its target and, where there is one, the floor of the same run.

`python -m bench.run [--json FILE] [--quick] [--only NAME]…`. Each measure runs on a store of its own, one after
another. Machines are noisy: rates are measured three times and the median is told, with the floor of that very run.
Nothing here fails a build; RESULTS.md keeps what was seen.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
from pathlib import Path

from bench import on_dispatcher, on_nats, on_postgres, on_sqlite
from bench.figures import Figure, Measure
from holdfast.runtime import own_process

MEASURES: dict[str, Measure] = {
    **on_sqlite.MEASURES,
    **on_postgres.MEASURES,
    **on_dispatcher.MEASURES,
    **on_nats.MEASURES,
}


def main() -> None:
    options = _options()
    own_process.tune()  # as `holdfast worker` does
    figures: list[Figure] = []
    for name in options.only or MEASURES:
        print(f"{name}:", flush=True)
        for figure in MEASURES[name](10 if options.quick else 1):
            figures.append(figure)
            print(f"  {figure.line()}", flush=True)
    print(f"\nPython {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.machine()}")
    if options.json:
        options.json.write_text(json.dumps([figure._asdict() for figure in figures], indent=2) + "\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, for a first look")
    parser.add_argument(
        "--only", action="append", choices=MEASURES, metavar="NAME", help=f"one of {', '.join(MEASURES)}; repeatable"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
