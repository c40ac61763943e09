"""How long to wait before the next attempt (contract C7.5).

`failures` counts the failure just recorded, so it starts at 1. Every delay is a whole number of milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from holdfast.errors import InvalidTask
from holdfast.model.backoff import Backoff, DelayList, Exponential, Fixed, Linear

LONGEST_SECONDS = 366 * 24 * 3600.0
EVALUATED_FAILURES = 100
"""How many values of a backoff function are taken at submit, at most; the last one repeats."""


class Rng(Protocol):
    def random(self) -> float: ...


def delay_ms(backoff: Backoff, failures: int, rng: Rng) -> int:
    seconds = _spread(_plain_seconds(backoff, failures), backoff.jitter, rng)
    return round(min(seconds, LONGEST_SECONDS) * 1000)


def _plain_seconds(backoff: Backoff, failures: int) -> float:
    match backoff:
        case Exponential(base, cap):
            # 2.0 ** 1024 overflows; the cap is reached long before.
            return min(cap, base * 2.0 ** min(failures - 1, 1000))
        case Fixed(delay):
            return delay
        case Linear(step, cap):
            return min(cap, step * failures)
        case DelayList(delays):
            return delays[min(failures, len(delays)) - 1]


def _spread(seconds: float, jitter: float, rng: Rng) -> float:
    return seconds * (1 + jitter * (2 * rng.random() - 1)) if jitter else seconds


def as_backoff(policy: Backoff | Callable[[int], float], max_attempts: int) -> Backoff:
    """A policy that can travel: a function of the failure count is evaluated here, into a list of delays."""
    if isinstance(policy, Exponential | Fixed | Linear | DelayList):
        backoff: Backoff = policy
    elif callable(policy):
        count = min(max_attempts - 1, EVALUATED_FAILURES) if max_attempts else EVALUATED_FAILURES
        backoff = DelayList(tuple(policy(failures) for failures in range(1, max(count, 1) + 1)))
    else:
        raise InvalidTask(
            f"backoff is {policy!r}: give Exponential, Fixed, Linear, Delays or a function of the failure count"
        )
    _check(backoff)
    return backoff


def _check(backoff: Backoff) -> None:
    match backoff:
        case Exponential(base, cap):
            spans: tuple[float, ...] = (base, cap)
        case Fixed(delay):
            spans = (delay,)
        case Linear(step, cap):
            spans = (step, cap)
        case DelayList(delays):
            spans = delays
    if not isinstance(spans, tuple) or not spans or not all(_within(span, LONGEST_SECONDS) for span in spans):
        raise InvalidTask(f"{backoff!r} has a delay that is not between 0 and {LONGEST_SECONDS:.0f} seconds")
    if not _within(backoff.jitter, 1):
        raise InvalidTask(f"{backoff!r}: jitter is a share between 0 and 1")


def _within(number: object, highest: float) -> bool:
    return isinstance(number, int | float) and 0 <= number <= highest
