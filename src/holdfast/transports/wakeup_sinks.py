"""From the URL of a wake-up transport to the sink that is declared for it. The scheme decides."""

from __future__ import annotations

from urllib.parse import urlsplit

from holdfast.errors import InvalidTask
from holdfast.model.outbox import Effect, NewSink
from holdfast.policy.admission import checked_name
from holdfast.transports import nats, sqs

SQS, NATS = ("sqs", "sqs+http"), ("nats", "tls")


def wakeup_sink(url: str) -> NewSink:
    """Its name and URL hold no secrets; credentials are kept apart, where no read shows them."""
    scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    if scheme in SQS:
        shown, credentials = sqs.parsed(url).url, None
    elif scheme in NATS:
        address = nats.parsed(url)
        shown, credentials = address.url, address.credentials
    else:
        raise InvalidTask("wakeup takes the URL of a transport: sqs://queue-name or nats://host:port/subject.prefix")
    name = checked_name(f"wakeup:{shown}", what="the wake-up's URL")
    return NewSink(name=name, url=shown, effect=Effect.WAKE, secret=credentials)
