"""How fast a chord runs: one submit of very many members, each of which tells the finalizer that it has ended."""

from __future__ import annotations

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError
from holdfast.workflows import forms

LONGEST_SECONDS = 600.0


class Chord(msgspec.Struct, frozen=True, kw_only=True):
    members: int
    processes: int
    submit_seconds: float
    """Built, checked and stored, all in one call."""
    members_per_s: float
    """From the first claim until the finalizer's result is there, with the results of all members handed to it."""


def chord(url: str, *, members: int, processes: int = 1) -> Chord:
    stores.require_shared(url, "a chord")
    with Holdfast(url) as app:
        stores.require_empty(app)
        noops = declare(app)
        began = SYSTEM_CLOCK.monotonic()
        run = forms.chord([noops.give.s(number) for number in range(members)], noops.gather.then()).enqueue()
        submitted = SYSTEM_CLOCK.monotonic() - began
        stores.tidy(url)
        with Crew(url, processes=processes) as crew:
            stores.wait_until(
                lambda: app.tasks.count()["queued"] < members, "the first claim", still_well=crew.require_alive
            )
            began = SYSTEM_CLOCK.monotonic()
            total = run.result(timeout=LONGEST_SECONDS)
            took = SYSTEM_CLOCK.monotonic() - began
        if total != members * (members - 1) // 2:
            raise HoldfastError(f"the finalizer gave {total}: it did not get what every member gave")
    return Chord(
        members=members,
        processes=processes,
        submit_seconds=round(submitted, 2),
        members_per_s=round(members / took),
    )
