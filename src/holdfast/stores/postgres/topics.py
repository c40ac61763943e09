"""What processes tell each other through the server: that work may be claimable, and that tasks have ended.

A topic has a channel for NOTIFY and a lock. Who is idle holds the lock, shared, by the session that listens; so the
server knows at any time whether anybody wants to be told, and forgets it with the session, however that ends.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

_CHANNEL_BYTES = 63


@dataclass(frozen=True, slots=True)
class Topic:
    channel: str
    lock: tuple[int, int]


class News(NamedTuple):
    """What a commit may tell."""

    channel: str
    sender: str
    key: int
    subkey: int


def topic(word: str, schema: str) -> Topic:
    """The same in every process. Two schemas with one lock would cost a NOTIFY that nobody needs, nothing else."""
    digest = hashlib.sha256(schema.encode()).digest()
    channel = f"holdfast {word} {schema}"
    if len(channel.encode()) > _CHANNEL_BYTES:
        channel = f"holdfast {word} {digest.hex()[:32]}"
    word_key = int.from_bytes(hashlib.sha256(f"holdfast {word}".encode()).digest()[:4], signed=True)
    return Topic(channel, (int.from_bytes(digest[:4], signed=True), word_key))
