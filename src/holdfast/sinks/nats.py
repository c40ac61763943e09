"""Wake-ups by NATS: one message per task that is due, all of a round confirmed by one flush."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.model.outbox import NewSink, OutboxRow
from holdfast.sinks.protocol import DELIVERED, Answer
from holdfast.transports.nats import connect, parsed
from holdfast.transports.sqs import WakeupBody

if TYPE_CHECKING:
    from nats.aio.client import Client

FLUSH_SECONDS = 5


class NatsSubject:
    def __init__(self, target: NewSink) -> None:
        self._address = parsed(target.url, target.secret)
        self._client: Client | None = None

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        client = await self._connected()
        try:
            for row in rows:
                await client.publish(self._address.subject(row.queue), _body(row))
            await client.flush(FLUSH_SECONDS)
        except BaseException:
            await self.close()
            raise
        return [DELIVERED] * len(rows)

    async def _connected(self) -> Client:
        if self._client is None or not self._client.is_connected:
            self._client = await connect(self._address)
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def _body(row: OutboxRow) -> bytes:
    return msgspec.json.encode(WakeupBody(row.task_id, row.queue))
