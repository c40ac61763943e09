"""The datasets of the memory store: its tables, while the lock is held.

Rows belong to the version with which they came and to the base of that: the last `replace` before it, or the first
version. A version is the rows of its base that came with it or before it, so an append costs what it adds, and old
versions cannot change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from holdfast import ids
from holdfast.clock import from_micros
from holdfast.model.output import DatasetVersion, Mode, Output, OutputRow
from holdfast.model.task import NewTask
from holdfast.policy import refusals
from holdfast.stores.memory.record import Record


class Came(NamedTuple):
    version: int
    value: str


@dataclass(slots=True)
class Dataset:
    name: str
    uuid: str
    created_at: int
    last: int = 0
    versions: dict[int, DatasetVersion] = field(default_factory=dict)
    bases: dict[int, int] = field(default_factory=dict)
    """By version: its base."""
    rows: dict[int, dict[str, Came]] = field(default_factory=dict)
    """By base, then by key."""

    def write(self, output: Output, task_id: str, now: int) -> None:
        before, self.last = self.last, self.last + 1
        base = self.last if output.mode is Mode.REPLACE or not before else self.bases[before]
        rows = self.rows.setdefault(base, {})
        held = len(rows)
        for row in output.rows:
            rows.setdefault(row.key, Came(self.last, row.value))
        self.bases[self.last] = base
        self.versions[self.last] = DatasetVersion(
            dataset=self.name,
            dataset_uuid=self.uuid,
            version=self.last,
            mode=output.mode,
            rows=len(rows),
            added=len(rows) - held,
            task_id=task_id,
            created_at=from_micros(now),
        )

    def read(self, version: int) -> list[OutputRow]:
        """Code points and their UTF-8 bytes have the same order."""
        came = self.rows[self.bases[version]]
        return [OutputRow(key, came[key].value) for key in sorted(came) if came[key].version <= version]

    def written_by(self, task_ids: Iterable[str]) -> int | None:
        """The latest version that one of these tasks wrote."""
        wanted = set(task_ids)
        return max((number for number, one in self.versions.items() if one.task_id in wanted), default=None)

    def drop(self, version: int) -> None:
        del self.versions[version]
        base = self.bases.pop(version)
        if base not in self.bases.values():
            del self.rows[base]


class Datasets:
    def __init__(self) -> None:
        self.by_name: dict[str, Dataset] = {}

    def write(self, outputs: Sequence[Output], task_id: str, now: int) -> None:
        for output in outputs:
            known = self.by_name.get(output.dataset)
            if known is None:
                made = Dataset(output.dataset, ids.token(), now)
                known = self.by_name[output.dataset] = made
            known.write(output, task_id, now)

    def check_pins(self, tasks: Iterable[NewTask]) -> None:
        for new in tasks:
            for pin in new.inputs:
                if pin.version is not None:
                    self.version(pin.dataset, pin.version)

    def version(self, dataset: str, version: int) -> Dataset:
        known = self.by_name.get(dataset)
        if known is None or version not in known.versions:
            raise refusals.dataset_not_found(dataset, version)
        return known

    def pinned(self, new: NewTask) -> dict[str, int | None]:
        return {pin.dataset: self._resolved(pin.dataset, pin.version, new.parents) for pin in new.inputs}

    def _resolved(self, dataset: str, version: int | None, parents: Sequence[str]) -> int | None:
        """What a parent wrote is fixed with the parent's completion, which comes before the promotion."""
        known = self.by_name.get(dataset)
        return known.written_by(parents) if version is None and known is not None else version

    def prune(self, live: Iterable[Record], before: int, limit: int) -> int:
        kept = {(dataset, version) for record in live for dataset, version in self.pinned(record.new).items()}
        old = (
            (known, number)
            for known in self.by_name.values()
            for number, one in known.versions.items()
            if number != known.last and (known.name, number) not in kept and one.created_at <= from_micros(before)
        )
        gone = list(islice(old, limit))
        for known, number in gone:
            known.drop(number)
        return len(gone)
