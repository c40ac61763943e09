"""The lists of runs' members (members.py): made anew where a member is in none, removed where all of them are gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast import ids
from holdfast.stores.nats.images import encode
from holdfast.stores.nats.members import listed_ids
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import Message
from holdfast.stores.portions import portions

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger
    from holdfast.stores.nats.leftovers import Leftovers

LISTED_MOST = 1000


class Rosters:
    def __init__(self, ledger: Ledger, leftovers: Leftovers) -> None:
        self._ledger = ledger
        self._leftovers = leftovers
        self._listed: dict[str, set[str]] = {}
        self.empty: list[str] = []
        """Lists whose members are all gone."""

    async def read(self) -> None:
        subjects, left = self._ledger.subjects, self._leftovers
        async for found in self._ledger.reader.every(subjects.runs):
            members = understood(listed_ids, found)
            self._listed.setdefault(subjects.first_of(found.subject)[0], set()).update(members)
            if not any(map(left.knows, members)) and len(await left.gone(members)) == len(members):
                self.empty.append(found.subject)

    async def missing(self, ended: Mapping[str, set[str]]) -> dict[str, list[str]]:
        """By run: members that are in no list. `ended`: those that had ended some time ago."""
        members = {run_id: set(task_ids) for run_id, task_ids in ended.items()}
        for run_id, records in self._ledger.replica.runs.items():
            members.setdefault(run_id, set()).update(records)
        unlisted = {run_id: sorted(found - self._listed.get(run_id, set())) for run_id, found in members.items()}
        there = await self._ledger.members.homes([one for task_ids in unlisted.values() for one in task_ids])
        missing = {run_id: [one for one in task_ids if one in there] for run_id, task_ids in unlisted.items()}
        return {run_id: task_ids for run_id, task_ids in missing.items() if task_ids}

    async def write(self, missing: Mapping[str, list[str]]) -> None:
        """A member that is listed twice does no harm."""
        for run_id, task_ids in missing.items():
            for part in portions(task_ids, LISTED_MOST):
                subject = self._ledger.subjects.born_together(run_id, min(part), ids.token_hex(4))
                await self._ledger.wire.write([Message(subject, encode(list(part)))])
