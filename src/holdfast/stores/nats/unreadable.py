"""Messages that nobody here understands: a newer Holdfast has written them, or somebody by hand, or they are damaged.

Whoever needs one is told which it is. A replica that lacks one could break a limit or give out what has ended, so it
answers nothing until the message is gone from its place (feed.py, ledger.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.reader import Found

T = TypeVar("T")

NOT_UNDERSTOOD = (msgspec.MsgspecError, ValueError)


def understood(decode: Callable[[bytes], T], found: Found) -> T:
    try:
        return decode(found.body)
    except NOT_UNDERSTOOD:
        raise unreadable(found.subject, found.seq) from None


def unreadable(subject: str, seq: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"message {seq} under {subject} cannot be read: a newer Holdfast has written it, or it is damaged; run the "
        "newest version that is in use here, or see `holdfast doctor`"
    )
