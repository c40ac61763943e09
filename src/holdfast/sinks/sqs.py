"""Wake-ups by Amazon SQS: batches of ten, a message for each task that is due, with its id and queue and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast.model.outbox import NewSink, OutboxRow
from holdfast.sinks.protocol import DELIVERED, Answer, unreached
from holdfast.sinks.threads import in_thread
from holdfast.transports.sqs import BATCH, Address, Connection, WakeupBody, connect, parsed

READ_SECONDS = 10.0
AT_ONCE = 4


class SqsQueue:
    def __init__(self, target: NewSink, *, connecting: Callable[..., Connection] = connect) -> None:
        self._address: Address = parsed(target.url)
        self._connecting = connecting
        self._connection: Connection | None = None

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        connection = await self._connected()
        places = asyncio.Semaphore(AT_ONCE)

        async def one(batch: Sequence[OutboxRow]) -> list[Answer]:
            async with places:
                try:
                    return await in_thread(lambda: _sent(connection, batch), name="holdfast-sqs-send")
                except Exception as error:
                    return [unreached(error)] * len(batch)

        batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
        answers = await asyncio.gather(*(one(batch) for batch in batches))
        return [answer for part in answers for answer in part]

    async def _connected(self) -> Connection:
        if self._connection is None:
            open_it = self._connecting
            self._connection = await in_thread(
                lambda: open_it(self._address, read_seconds=READ_SECONDS, most=AT_ONCE), name="holdfast-sqs-connect"
            )
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _sent(connection: Connection, rows: Sequence[OutboxRow]) -> list[Answer]:
    """One call. SQS takes or refuses each entry for itself."""
    entries = [
        {"Id": str(place), "MessageBody": msgspec.json.encode(WakeupBody(row.task_id, row.queue)).decode()}
        for place, row in enumerate(rows)
    ]
    said: dict[str, Any] = connection.client.send_message_batch(QueueUrl=connection.queue_url, Entries=entries)
    taken = {entry["Id"] for entry in said.get("Successful", [])}
    refused = {entry["Id"]: entry for entry in said.get("Failed", [])}
    return [_answer(entry["Id"], taken, refused) for entry in entries]


def _answer(entry_id: str, taken: set[str], refused: dict[str, Any]) -> Answer:
    if entry_id in taken:
        return DELIVERED
    if entry_id not in refused:
        return unreached("SQS did not say what became of it")
    why = refused[entry_id]
    return Answer(error=f"{why.get('Code')}: {why.get('Message', '')}"[:500], blame=bool(why.get("SenderFault")))
