"""Hands what is told to every subscriber, from whichever thread it happens on. A subscriber must not block."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.events.facts import Told

Subscriber = Callable[[Told], None]


class Bus:
    def __init__(self, *subscribers: Subscriber) -> None:
        self._subscribers = subscribers

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers = (*self._subscribers, subscriber)

    def publish(self, told: Told) -> None:
        for subscriber in self._subscribers:
            subscriber(told)
