"""`app.sinks` and `app.outbox`: who is told of changes, and what they are yet to be told (contract section 12)."""

from __future__ import annotations

from builtins import list as List  # noqa: N812  these classes have a method named list

from holdfast.desks import Desk
from holdfast.errors import InvalidTask
from holdfast.model.outbox import OutboxRow, OutboxState, Sink
from holdfast.policy.admission import checked_int, checked_name, maybe_name

PAGE = 500
ID_HIGHEST = 2**63 - 1


class SinksDesk(Desk):
    def list(self) -> List[Sink]:
        """By name, each with how much waits for it; no secrets."""
        return self._plainly(self.alist, "list")

    async def alist(self) -> List[Sink]:
        return await self._client.store.sinks()

    def delete(self, name: str) -> bool:
        """Forget it, with all that waits for it; False if there is none. One that code declares comes back with the
        next process that starts.
        """
        return self._plainly(lambda: self.adelete(name), "delete")

    async def adelete(self, name: str) -> bool:
        return await self._client.store.delete_sink(checked_name(name, what="the sink's name"))

    def declare(self) -> None:
        """Make known now what this program's code declares. Workers, and every first submit, do it by themselves; who
        only submits within transactions of his own calls it once.
        """
        self._plainly(self.adeclare, "declare")

    async def adeclare(self) -> None:
        await self._client.declare_sinks()


class OutboxDesk(Desk):
    """What sinks are yet to be told, and what was given up."""

    def list(
        self, sink: str | None = None, state: str | None = None, limit: int = 100, after: int = 0
    ) -> List[OutboxRow]:
        """Oldest first; `state` is `pending` or `dead`; `after` is the id of the last row of the page before."""
        return self._plainly(lambda: self.alist(sink, state, limit, after), "list")

    async def alist(
        self, sink: str | None = None, state: str | None = None, limit: int = 100, after: int = 0
    ) -> List[OutboxRow]:
        return await self._client.store.outbox(
            sink=maybe_name(sink, what="the sink's name"),
            state=_state(state),
            limit=checked_int(limit, 1, 10_000, what="limit"),
            after=checked_int(after, 0, ID_HIGHEST, what="after"),
        )

    def requeue(self, row_id: int) -> bool:
        """A dead row is tried again, with all its tries; False if there is no dead row of this id."""
        return self._plainly(lambda: self.arequeue(row_id), "requeue")

    async def arequeue(self, row_id: int) -> bool:
        return await self._client.store.requeue_outbox([_row_id(row_id)]) > 0

    def requeue_all(self, sink: str | None = None) -> int:
        """Every dead row, or those of one sink; how many. Works in bounded batches."""
        return self._plainly(lambda: self.arequeue_all(sink), "requeue_all")

    async def arequeue_all(self, sink: str | None = None) -> int:
        number = 0
        for page in await self._dead_pages(sink):
            number += await self._client.store.requeue_outbox(page)
        return number

    def delete(self, row_id: int) -> bool:
        """A dead row is forgotten; False if there is none of this id."""
        return self._plainly(lambda: self.adelete(row_id), "delete")

    async def adelete(self, row_id: int) -> bool:
        return await self._client.store.purge_outbox([_row_id(row_id)]) > 0

    def purge(self, sink: str | None = None) -> int:
        """Forget every dead row, or those of one sink; how many."""
        return self._plainly(lambda: self.apurge(sink), "purge")

    async def apurge(self, sink: str | None = None) -> int:
        number = 0
        for page in await self._dead_pages(sink):
            number += await self._client.store.purge_outbox(page)
        return number

    async def _dead_pages(self, sink: str | None) -> List[List[int]]:
        """The ids of all that is dead now: what dies again while they are worked off is not met twice."""
        pages, after = [], 0
        while page := await self.alist(sink, OutboxState.DEAD, PAGE, after):
            after = page[-1].id
            pages.append([row.id for row in page])
        return pages


def _state(state: str | None) -> OutboxState | None:
    try:
        return None if state is None else OutboxState(state)
    except ValueError:
        raise InvalidTask(f"there is no state {state!r} of the outbox; there are: pending, dead") from None


def _row_id(row_id: int) -> int:
    return checked_int(row_id, 1, ID_HIGHEST, what="the id of a row")
