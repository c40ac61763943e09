"""How long the work of a worker that was killed with −9 lies idle, while leases last a minute."""

from __future__ import annotations

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK


class Rescue(msgspec.Struct, frozen=True, kw_only=True):
    lease_seconds: float
    seconds: float
    """From the kill to the first line of the next attempt, in another process."""


def rescue(url: str, *, lease_seconds: float = 60.0) -> Rescue:
    stores.require_shared(url, "a rescue by another process")
    options = ("--lease", str(lease_seconds))
    with Holdfast(url) as app:
        stores.require_empty(app)
        handle = declare(app).survive.enqueue()
        with Crew(url, options=options) as first:
            stores.wait_until(
                lambda: handle.task().status == "running", "the first attempt", still_well=first.require_alive
            )
            with Crew(url, options=options) as second:
                stores.wait_until(
                    lambda: len(app.workers.list()) == 2, "the second worker", still_well=second.require_alive
                )
                killed_at = SYSTEM_CLOCK.monotonic()
                for member in first.members:
                    member.kill()
                begun_at = handle.result(timeout=stores.PATIENCE_SECONDS)
    return Rescue(lease_seconds=lease_seconds, seconds=round(begun_at - killed_at, 2))
