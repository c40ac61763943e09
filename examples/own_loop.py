"""Drive the loop yourself: TaskManager has no worker, no registry and no backoff, only the store's promises.

For programs that have a loop of their own (an agent, a game server, a test rig) and want durable, leased tasks in it.
"""

import asyncio
from typing import Any

from holdfast import TaskManager
from holdfast.errors import TaskAlreadyClaimed

WORKER = "packer-1"


def pack(order: dict[str, Any], attempt: int) -> str:
    if order["fragile"] and attempt == 1:
        raise RuntimeError("broke while packing")
    return f"order {order['no']} is packed"


async def main() -> None:
    async with await TaskManager.open("sqlite:///orders.db") as manager:
        for number in range(3):
            order = {"no": number, "fragile": number == 1}
            await manager.submit(order, idempotency_key=f"order-{number}", max_attempts=3)

        while queued := await manager.list("queued"):
            for task in reversed(queued):  # the list is newest first
                try:
                    claimed = await manager.claim(task.id, WORKER)
                except TaskAlreadyClaimed:
                    continue  # another process was quicker
                try:
                    packed = pack(claimed.payload, claimed.attempt)
                except RuntimeError as error:
                    await manager.fail(task.id, error, worker_id=WORKER)
                else:
                    await manager.complete(task.id, packed, worker_id=WORKER)

        for task in reversed(await manager.list("completed")):
            print(task.result, "at attempt", task.attempt)


if __name__ == "__main__":
    asyncio.run(main())
