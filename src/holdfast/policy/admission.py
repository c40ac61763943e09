"""What may be submitted: names, keys, numbers, and JSON that comes back as it went in (contract C4.5).

One answer for every store, reached before anything is written.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.errors import InvalidTask, InvalidWorkerID, PayloadTooLarge

NAME_BYTES = 512
PAYLOAD_BYTES = 1 << 20
META_BYTES = 16 << 10
DEPTH = 200
PRIORITY_LOWEST, PRIORITY_HIGHEST = -32768, 32767
MAX_ATTEMPTS_HIGHEST = 1_000_000
SPAN_LONGEST = 10 * 366 * 24 * 3600.0
BATCH_LONGEST = 100_000
WORKFLOW_TASKS, WORKFLOW_EDGES = 250_000, 1_000_000
_INT_BITS = 4096

_encode = msgspec.json.Encoder().encode


def json_text(value: Any, *, what: str, limit_bytes: int = PAYLOAD_BYTES) -> str:
    """The JSON text of `value`, if decoding it gives back an equal value of the same types; else InvalidTask."""
    try:
        # Before encoding: a small value whose parts are shared can stand for more text than there is memory.
        if _room_left(value, what, DEPTH, limit_bytes) < 0:
            raise PayloadTooLarge(_too_large(what, "more than", limit_bytes))
        encoded = _encode(value)
    except RecursionError:
        raise InvalidTask(f"{what} is nested too deeply; at most {DEPTH} levels are kept") from None
    except UnicodeEncodeError:
        raise InvalidTask(f"{what} holds a lone surrogate, which is not text; encode bytes as base64 first") from None
    if len(encoded) > limit_bytes:
        raise PayloadTooLarge(_too_large(what, f"{len(encoded):,} bytes of JSON, more than", limit_bytes))
    return encoded.decode()


def _too_large(what: str, how_much: str, limit_bytes: int) -> str:
    return f"{what} takes {how_much} {limit_bytes:,} bytes; store it elsewhere and send its address"


def _room_left(value: Any, what: str, depth: int, room: int) -> int:
    """Refuses what JSON does not return as it was; else what is left of `room`, counting at least one byte per part."""
    kind = type(value)
    if kind is str:
        return room - len(value)
    if kind is bool or value is None:
        return room - 1
    if kind is int:
        if value.bit_length() > _INT_BITS:
            raise InvalidTask(f"{what} holds an integer of {value.bit_length()} bits; at most {_INT_BITS} are kept")
        return room - 1
    if kind is float:
        if not math.isfinite(value):
            raise InvalidTask(f"{what} holds {value!r}, which JSON cannot carry")
        return room - 1
    if depth == 0:
        raise InvalidTask(f"{what} is nested too deeply; at most {DEPTH} levels are kept")
    room -= 1
    if kind is list:
        for item in value:
            if room < 0:
                return room
            room = _room_left(item, what, depth - 1, room)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidTask(f"{what} has the key {_shown(key)}; JSON keys are plain strings")
            if room < 0:
                return room
            room = _room_left(item, what, depth - 1, room - len(key))
    else:
        raise InvalidTask(
            f"{what} holds a {kind.__module__}.{kind.__qualname__}, which JSON does not return as it was; "
            "send str, int, float, bool, None, list or dict"
        )
    return room


def checked_name(text: Any, *, what: str) -> str:
    """A name or key: plain text of 1 to 512 bytes without control characters."""
    if type(text) is not str or not text:
        raise InvalidTask(f"{what} is {_shown(text)}; give a non-empty string")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidTask(f"{what} holds a lone surrogate, which is not text") from None
    if size > NAME_BYTES:
        raise InvalidTask(f"{what} takes {size} bytes, more than {NAME_BYTES}: {text[:40]!r}…")
    if not text.isprintable() and any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text):
        raise InvalidTask(f"{what} {text!r} holds a control character")
    return text


def maybe_name(text: Any, *, what: str) -> str | None:
    return None if text is None else checked_name(text, what=what)


def checked_worker_id(worker_id: Any) -> str:
    try:
        return checked_name(worker_id, what="the worker id")
    except InvalidTask as refused:
        raise InvalidWorkerID(str(refused)) from None


def checked_int(number: Any, lowest: int, highest: int, *, what: str) -> int:
    if type(number) is not int or not lowest <= number <= highest:
        raise InvalidTask(f"{what} is {_shown(number)}; give a whole number from {lowest} to {highest}")
    return number


def checked_span(seconds: Any, *, what: str, above_zero: bool = False) -> float:
    """A span in seconds, as int, float or timedelta-made float."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= SPAN_LONGEST:
        raise InvalidTask(f"{what} is {_shown(seconds)}; give seconds or a timedelta, from 0 to ten years")
    if above_zero and seconds < 0.001:
        raise InvalidTask(f"{what} is {seconds!r}; give at least a millisecond")
    return float(seconds)


def checked_instant(instant: Any, *, what: str) -> datetime:
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise InvalidTask(
            f"{what} is {_shown(instant)}; give an aware datetime, such as datetime.now(UTC) + timedelta(hours=1)"
        )
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise InvalidTask(f"{what} is {_shown(instant)}, which in UTC is before year 1 or after year 9999") from None


def _shown(value: Any) -> str:
    """What was given, in a refusal: bounded, and whatever its own repr does."""
    try:
        text = repr(value)
        return text if len(text) <= 100 else f"{text[:100]}…"
    except Exception:
        return f"a {type(value).__name__} that cannot be shown"
