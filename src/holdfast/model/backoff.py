"""Retry delays as data, so that they travel with the task and any process can apply them.

The arithmetic is in policy/backoff.py. All spans are seconds.
"""

from __future__ import annotations

import msgspec


class Exponential(msgspec.Struct, frozen=True, tag="exponential"):
    """`base * 2^(failures-1)`, at most `cap`, then spread by ± `jitter`."""

    base: float = 1.5
    cap: float = 60.0
    jitter: float = 0.3


class Fixed(msgspec.Struct, frozen=True, tag="fixed"):
    """The same delay after every failure."""

    delay: float
    jitter: float = 0.0


class Linear(msgspec.Struct, frozen=True, tag="linear"):
    """`step * failures`, at most `cap`."""

    step: float
    cap: float = 60.0
    jitter: float = 0.0


class DelayList(msgspec.Struct, frozen=True, tag="delays"):
    """One delay per failure; the last one repeats."""

    delays: tuple[float, ...]
    jitter: float = 0.0


def Delays(*delays: float, jitter: float = 0.0) -> DelayList:  # noqa: N802  it reads as the value that it makes
    """`Delays(1, 5, 30)`: 1 s after the first failure, 5 s after the second, 30 s after every later one."""
    return DelayList(tuple(float(delay) for delay in delays), jitter)


Backoff = Exponential | Fixed | Linear | DelayList

DEFAULT_BACKOFF = Exponential()
IMMEDIATELY = Fixed(0.0)

_decoder: msgspec.json.Decoder[Backoff] = msgspec.json.Decoder(Backoff)
_texts: dict[Backoff, str] = {}


def backoff_text(backoff: Backoff) -> str:
    """As stored. Few distinct policies exist in a process, so the texts are kept."""
    text = _texts.get(backoff)
    if text is None:
        text = msgspec.json.encode(backoff).decode()
        if len(_texts) < 1024:
            _texts[backoff] = text
    return text


def backoff_from_text(text: str) -> Backoff:
    return _decoder.decode(text)
