"""The one place that draws randomness: task ids, lease tokens, nonces, and the generator that jitter is drawn from."""

from __future__ import annotations

import base64
import os
import random
import struct
import threading

from holdfast.clock import wall_nanos

_lock = threading.Lock()
_last_stamp = 0

JITTER = random.Random()  # noqa: S311  spreads retries; nothing secret depends on it
os.register_at_fork(after_in_child=JITTER.seed)


def _renew_lock() -> None:
    """Another thread may have held it at the fork; in the child nobody would ever release it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def task_ids(count: int) -> list[str]:
    """`count` new UUIDv7 texts, ascending, also against every id made earlier in this process.

    The 74 bits beside the millisecond hold its fraction (12 bits, as RFC 9562 method 3) and randomness (62 bits).
    """
    global _last_stamp
    with _lock:
        stamp = wall_nanos() * 4096 // 1_000_000  # milliseconds with a 12-bit fraction
        first = max(stamp, _last_stamp + 1)
        _last_stamp = first + count - 1
    made = []
    known, prefix = -1, ""
    noise = struct.unpack(f">{count}Q", os.urandom(8 * count))
    for moment, bits in zip(range(first, first + count), noise, strict=True):
        millis = moment >> 12
        if millis != known:  # the same for up to 4096 ids
            known, prefix = millis, f"{(millis >> 16) & 0xFFFFFFFF:08x}-{millis & 0xFFFF:04x}-7"
        made.append(f"{prefix}{moment & 0xFFF:03x}-{bits >> 50 | 0x8000:04x}-{bits & 0xFFFFFFFFFFFF:012x}")
    return made


def task_id() -> str:
    return task_ids(1)[0]


def tokens(count: int) -> list[str]:
    """`count` unguessable UUIDv4 texts: lease tokens and claim ids."""
    noise = os.urandom(16 * count).hex()
    made = []
    for i in range(0, 32 * count, 32):
        variant = "89ab"[int(noise[i + 16], 16) & 3]
        made.append(
            f"{noise[i : i + 8]}-{noise[i + 8 : i + 12]}-4{noise[i + 13 : i + 16]}"
            f"-{variant}{noise[i + 17 : i + 20]}-{noise[i + 20 : i + 32]}"
        )
    return made


def token() -> str:
    return tokens(1)[0]


def nonce() -> str:
    """A short random word that makes a worker id unique to one process."""
    return os.urandom(5).hex()


def token_hex(size: int) -> str:
    """So many unguessable bytes, as hexadecimal digits."""
    return os.urandom(size).hex()


def token_urlsafe(size: int) -> str:
    """The same, as letters, digits, `-` and `_`."""
    return base64.urlsafe_b64encode(os.urandom(size)).rstrip(b"=").decode()
