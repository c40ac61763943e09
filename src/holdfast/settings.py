"""Settings: from code, then the environment, then these defaults (contract section 16). Parsed once, at the edge."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import msgspec

from holdfast.errors import InvalidTask
from holdfast.model.backoff import Backoff, Exponential
from holdfast.policy.admission import MAX_ATTEMPTS_HIGHEST, checked_span

Span = float | int | timedelta
"""Seconds, or a timedelta."""


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What a task gets that says nothing else."""

    max_attempts: int = 5
    lease_seconds: float = 60.0
    backoff: Backoff = Exponential()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Defaults:
        return cls(
            max_attempts=_whole(environ, "TASK_MAX_ATTEMPTS", 5, lowest=0, highest=MAX_ATTEMPTS_HIGHEST),
            lease_seconds=_whole(environ, "TASK_LOCK_MS", 60_000, lowest=100) / 1000,
            backoff=Exponential(
                base=_whole(environ, "TASK_RETRY_BASE_MS", 1500) / 1000,
                cap=_whole(environ, "TASK_RETRY_CAP_MS", 60_000) / 1000,
            ),
        )


def _whole(environ: Mapping[str, str], name: str, default: int, *, lowest: int = 0, highest: int = 10**12) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not text.strip().isdecimal() or not lowest <= int(text) <= highest:
        raise InvalidTask(f"{name}={text!r}: give a whole number from {lowest} to {highest}")
    return int(text)


def seconds(span: Span, *, what: str, above_zero: bool = False) -> float:
    if isinstance(span, timedelta):
        span = span.total_seconds()
    return checked_span(span, what=what, above_zero=above_zero)


def maybe_seconds(span: Span | None, *, what: str) -> float | None:
    return None if span is None else seconds(span, what=what, above_zero=True)


def default_url(environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The store's URL when code names none, and where it came from, in words."""
    if environ.get("HOLDFAST_URL"):
        return environ["HOLDFAST_URL"], "HOLDFAST_URL"
    return "sqlite:///holdfast.db", f"the default, {Path('holdfast.db').absolute()}"
