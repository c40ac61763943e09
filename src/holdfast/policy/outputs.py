"""What a completion may write into datasets, and what a task may pin (contract section 13). Refused before anything is
written; the same for every store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.errors import InvalidTask, PayloadTooLarge
from holdfast.model.output import Mode, Output, OutputRow, Pin
from holdfast.policy.admission import checked_name, json_text

ROWS_MOST = 100_000
BYTES_MOST = 16 << 20
PINS_MOST = 100
FROM_PARENT = "parent"


def checked_mode(mode: Any) -> Mode:
    if mode not in tuple(Mode):
        raise InvalidTask(f"the output's mode is {mode!r}; write append or replace")
    return Mode(mode)


def checked_row(key: Any, value: Any) -> OutputRow:
    checked_name(key, what="the key of an output row")
    return OutputRow(key, json_text(value, what=f"the value of output row {key!r}"))


def merged(outputs: Sequence[Output]) -> tuple[Output, ...]:
    """One per dataset, by name: a commit makes one version of each. Of a key that is given twice the first counts."""
    by_name: dict[str, tuple[Mode, dict[str, OutputRow]]] = {}
    for output in outputs:
        mode, rows = by_name.setdefault(output.dataset, (output.mode, {}))
        check_mode(output, mode)
        for row in output.rows:
            rows.setdefault(row.key, row)
    return tuple(Output(name, mode, tuple(rows.values())) for name, (mode, rows) in sorted(by_name.items()))


def check_mode(output: Output, before: Mode) -> None:
    """`before`: how the same attempt has written into this dataset so far."""
    if output.mode is not before:
        raise InvalidTask(f"one attempt both replaces and appends to dataset {output.dataset!r}; do one of them")


def check(outputs: Iterable[Output]) -> None:
    """How much one completion may carry."""
    rows = size = 0
    for output in outputs:
        rows += len(output.rows)
        size += size_of(output)
    check_size(rows, size)


def size_of(output: Output) -> int:
    return sum(len(row.key) + len(row.value) for row in output.rows)


def check_size(rows: int, size: int) -> None:
    if rows > ROWS_MOST:
        raise PayloadTooLarge(f"the outputs of one attempt have {rows:,} rows, more than {ROWS_MOST:,}; write in parts")
    if size > BYTES_MOST:
        raise PayloadTooLarge(f"the outputs of one attempt take {size:,} bytes, more than {BYTES_MOST:,}")


def checked_pins(inputs: Any) -> tuple[Pin, ...]:
    """`{"orders": 3}`, or `{"orders": "parent"}` for what a parent writes."""
    if not isinstance(inputs, Mapping):
        raise InvalidTask(f"inputs is {inputs!r}; give a dict such as {{'orders': 3}}")
    if len(inputs) > PINS_MOST:
        raise InvalidTask(f"{len(inputs)} inputs; at most {PINS_MOST} can be pinned")
    return tuple(sorted((_pin(dataset, version) for dataset, version in inputs.items()), key=lambda pin: pin.dataset))


def _pin(dataset: Any, version: Any) -> Pin:
    checked_name(dataset, what="the dataset")
    if version == FROM_PARENT:
        return Pin(dataset, None)
    if type(version) is not int or version < 1:
        raise InvalidTask(
            f"the version of dataset {dataset!r} is {version!r}; "
            "give a number from 1 on, or 'parent' for what a parent writes"
        )
    return Pin(dataset, version)


def shown_pins(pins: Sequence[Pin]) -> dict[str, int | str]:
    return {pin.dataset: FROM_PARENT if pin.version is None else pin.version for pin in pins}
