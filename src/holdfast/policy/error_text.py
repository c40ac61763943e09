"""Error texts that can always be stored: whatever an exception does when it is asked to describe itself.

A text that a store refuses would make the failing task impossible to settle, so this page lets nothing odd through:
no lone surrogates, no NUL, bounded length, and never an exception of its own.
"""

from __future__ import annotations

import traceback

from holdfast.model.outcome import ErrorInfo

MESSAGE_CHARS = 2_000
STACK_CHARS = 16_000


def error_info(raised: BaseException, *, code: str | None = None) -> ErrorInfo:
    return ErrorInfo(message=_message(raised), code=code or type(raised).__name__[:200], stack=_stack(raised))


def safe_text(text: str, limit: int) -> str:
    if len(text) > limit:
        text = f"{text[: limit - 40]}… ({len(text):,} characters)"
    safe = text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")
    return safe if len(safe) <= limit else f"{safe[: limit - 1]}…"


def _message(raised: BaseException) -> str:
    name = type(raised).__name__
    try:
        text = str.__str__(str(raised))  # a subclass of str, with methods of its own, becomes plain here
    except BaseException:  # a hostile __str__ may raise anything, SystemExit included
        return f"{name} (its text could not be made)"
    return safe_text(text or name, MESSAGE_CHARS)


def _stack(raised: BaseException) -> str | None:
    """File, line and source of each frame, innermost last. Never local variables, never the exception's own text."""
    try:
        frames = traceback.extract_tb(raised.__traceback__, limit=-50)
        text = "".join(traceback.format_list(frames))
    except BaseException:
        return None
    return safe_text(text[-STACK_CHARS:], STACK_CHARS) or None
