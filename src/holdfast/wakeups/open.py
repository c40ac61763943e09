"""From a wake-up's sink to the transport that a worker listens to. The scheme of its URL names the module."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from holdfast.model.outbox import NewSink
from holdfast.transports.extras import missing, present
from holdfast.transports.wakeup_sinks import SQS
from holdfast.wakeups.protocol import Transport
from holdfast.wakeups.reports import Reports


def transport(sink: NewSink, queues: Sequence[str] | None, reports: Reports) -> Transport:
    """NotSupported where its package is missing: a worker that was told to listen and cannot should say so at once."""
    if urlsplit(sink.url).scheme in SQS:
        if not present("boto3"):
            raise missing("a wake-up by SQS", "boto3", "sqs")
        from holdfast.wakeups.sqs import SqsWakeup

        return SqsWakeup(sink, queues, reports)
    if not present("nats"):
        raise missing("a wake-up by NATS", "nats-py", "nats")
    from holdfast.wakeups.nats import NatsWakeup

    return NatsWakeup(sink, queues, reports)
