"""What may be declared as a sink: names, kinds, queues, secrets, checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from holdfast.errors import InvalidTask
from holdfast.model.outbox import Effect, NewSink
from holdfast.policy.addresses import checked_webhook_url
from holdfast.policy.admission import NAME_BYTES, checked_name, maybe_name

SUBSCRIBER = "subscriber"
MOST_NAMES = 1000


def webhook_sink(
    url: Any,
    *,
    secret: Any = None,
    kinds: Sequence[str] | None = None,
    queues: Sequence[str] | None = None,
    name: Any = None,
    private: bool = False,
) -> NewSink:
    checked = checked_webhook_url(url, private=private)
    return NewSink(
        name=checked_name(_plain_name(checked) if name is None else name, what="the sink's name"),
        url=checked,
        effect=Effect.ROUTE,
        kinds=_names(kinds, what="kinds"),
        queues=_names(queues, what="queues"),
        secret=maybe_name(secret, what="the secret"),
        private=bool(private),
    )


def subscriber_sink(name: Any, kinds: Sequence[str], queues: Sequence[str] | None) -> NewSink:
    url = f"{SUBSCRIBER}:{checked_name(name, what='the name of a subscriber')}"
    return NewSink(
        name=checked_name(url, what="the sink's name"),
        url=url,
        effect=Effect.ROUTE,
        kinds=_names(kinds, what="kinds") if kinds else None,
        queues=_names(queues, what="queues"),
    )


def _plain_name(url: str) -> str:
    """Without its query: secrets often stand there, and names are shown."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:NAME_BYTES]


def _names(given: Sequence[str] | None, *, what: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence) or not 1 <= len(given) <= MOST_NAMES:
        raise InvalidTask(f"{what} is a list of names, such as ['task.failed']; leave it out for all")
    return tuple(checked_name(each, what=f"each of {what}") for each in given)
