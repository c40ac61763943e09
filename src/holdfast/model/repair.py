"""What a repair of a store has found, and done."""

from __future__ import annotations

import msgspec


class Repair(msgspec.Struct, frozen=True):
    what: str
    """The index."""
    number: int
    """Of entries that were wrong, missing or left over."""
    words: str
