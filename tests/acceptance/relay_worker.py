"""A process that relays to one webhook and kills itself, as kill -9 does, between telling it and recording that.

python -m tests.acceptance.relay_worker URL RECEIVER [die]
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from holdfast import Holdfast
from holdfast.maintenance import relay
from holdfast.maintenance.posts import Post
from holdfast.model.outbox import OutboxRow
from holdfast.sinks.protocol import Answer


def main(url: str, receiver: str, *, die: bool) -> None:
    app = Holdfast(url)
    app.webhook(receiver, name="hook", private=True)
    if die:
        tell = Post.tell

        async def tell_and_die(self: Any, rows: Sequence[OutboxRow]) -> list[Answer]:
            await tell(self, rows)
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("nobody comes here")

        Post.tell = tell_and_die  # type: ignore[method-assign]
    relay.HOLD_SECONDS = 1.0  # so that the next one does not have to wait a minute
    app.worker(poll_interval=0.05).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], die=sys.argv[3:] == ["die"])
