"""The NATS store's verbs for workflows."""

from __future__ import annotations

from functools import partial

from holdfast.errors import InvalidTask
from holdfast.model.workflow import ParentEnd, RunInfo
from holdfast.stores.memory.record import parent_end, run_info
from holdfast.stores.nats.handle import Handle
from holdfast.stores.nats.images import decode_image, made
from holdfast.stores.nats.unreadable import understood


class FlowVerbs(Handle):
    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  the one whose settle began it is the actor
        return await self._ledger.change(partial(self._ledger.acts.advance, limit), fresh=True)

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        await self._ledger.ready()
        if not await self._ledger.homes([task_id]):
            return []
        named = (await self._ledger.specs.of([task_id]))[task_id].new.parents[after : after + limit]
        found = await self._ledger.members.homes(list(dict.fromkeys(named)))
        return [
            parent_end(made(parent_id, understood(decode_image, found[parent_id]), found[parent_id].seq))
            for parent_id in named
            if parent_id in found
        ]

    async def run(self, run_id: str) -> RunInfo | None:
        async with self._ledger.steady():
            here = self._ledger.members.here(run_id)
        members = await self._ledger.members.with_others(run_id, here)
        return run_info(run_id, list(members)) if members else None

    async def run_lives(self, run_id: str) -> bool:
        async with self._ledger.steady():
            return self._ledger.replica.lives[run_id] > 0

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        await self._ledger.ready()
        firsts: dict[str, str] = {}
        for name in await self._ledger.reader.subjects(self._ledger.subjects.runs):
            run_id, first_id = self._ledger.subjects.first_of(name)
            firsts[run_id] = min(first_id, firsts.get(run_id, first_id))
        newest = sorted(firsts, key=lambda run_id: firsts[run_id], reverse=True)
        if after is not None:
            if after not in firsts:
                raise InvalidTask(f"`after` names run {after}, which does not exist; start from the first page")
            newest = newest[newest.index(after) + 1 :]
        page: list[RunInfo] = []
        for run_id in newest:
            if len(page) == limit:
                break
            info = await self.run(run_id)
            if info is not None:
                page.append(info)
        return page
