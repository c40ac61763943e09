"""From a sink to its channel, where this process can serve it. The scheme of its URL names the module."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from holdfast.errors import NotSupported
from holdfast.model.outbox import NewSink
from holdfast.policy.sinks import SUBSCRIBER
from holdfast.sinks.protocol import Channel, Subscriber
from holdfast.transports.extras import missing, present


def channel(target: NewSink, subscribers: Mapping[str, Subscriber]) -> Channel:
    """NotSupported, in words, for what has to be left to others."""
    match _scheme(target.url):
        case "http" | "https":
            if not present("aiohttp"):
                raise missing("a webhook", "aiohttp", "http")
            from holdfast.sinks.webhook import Webhook

            return Webhook(target)
        case "sqs" | "sqs+http":
            if not present("boto3"):
                raise missing("a wake-up by SQS", "boto3", "sqs")
            from holdfast.sinks.sqs import SqsQueue

            return SqsQueue(target)
        case "nats" | "tls":
            if not present("nats"):
                raise missing("a wake-up by NATS", "nats-py", "nats")
            from holdfast.sinks.nats import NatsSubject

            return NatsSubject(target)
        case scheme if scheme == SUBSCRIBER:
            return _subscriber(target, subscribers)
        case scheme:
            raise NotSupported(f"this version of Holdfast knows no sinks of the kind {scheme!r}")


def _scheme(url: str) -> str:
    """Whoever wrote the record may have done so past our checks."""
    try:
        return urlsplit(url).scheme
    except ValueError:
        raise NotSupported("its URL cannot be read") from None


def _subscriber(target: NewSink, subscribers: Mapping[str, Subscriber]) -> Channel:
    from holdfast.sinks.subscriber import InProcess

    function = subscribers.get(target.name)
    if function is None:
        raise NotSupported("the code of this process has no such subscriber")
    return InProcess(function)
