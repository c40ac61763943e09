"""Amazon SQS: `sqs://queue-name`, `sqs://host:port/account/name`, `sqs+http://…` for a plain endpoint.

Region and credentials are found by boto3's own ways: environment, profile, the machine's role.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast.errors import InvalidTask
from holdfast.transports.extras import missing

CONNECT_SECONDS = 5.0
BATCH = 10
"""More entries SQS does not take in one call."""
HOW = "write sqs://queue-name, sqs://host:port/account/name, or sqs+http://host:port/account/name without TLS"

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_REGION = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?::443)?")


class Address(msgspec.Struct, frozen=True):
    name: str
    endpoint: str | None
    """None: where boto3 finds it."""
    account: str | None

    @property
    def url(self) -> str:
        """As it is declared and shown; there are no secrets in it."""
        if self.endpoint is None:
            return f"sqs://{self.name}"
        scheme, _, host = self.endpoint.partition("://")
        return f"{'sqs' if scheme == 'https' else 'sqs+http'}://{host}/{self.account}/{self.name}"


class WakeupBody(msgspec.Struct, frozen=True):
    """All that a message says: no payload ever leaves by this way."""

    task_id: str
    queue: str


def parsed(url: str) -> Address:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise InvalidTask(f"an SQS URL cannot be read; {HOW}") from None
    if "@" in parts.netloc:
        raise InvalidTask("an SQS URL must not hold credentials; boto3 finds them in the environment or a profile")
    if parts.query or parts.fragment or not parts.netloc:
        raise InvalidTask(f"an SQS URL names a queue and nothing else; {HOW}")
    if parts.scheme == "sqs" and parts.path in ("", "/"):
        return Address(_checked(parts.netloc), None, None)
    account, _, name = parts.path.strip("/").partition("/")
    if not account.isalnum():
        raise InvalidTask(f"an SQS URL with a host also names account and queue; {HOW}")
    scheme = "https" if parts.scheme == "sqs" else "http"
    return Address(_checked(name), f"{scheme}://{parts.netloc}", account)


def _checked(name: str) -> str:
    if name.endswith(".fifo"):
        raise InvalidTask("wake-ups go over a standard queue; a FIFO queue would hold later ones back for nothing")
    if not _NAME.fullmatch(name):
        raise InvalidTask(f"{name[:80]!r} is no name of an SQS queue; {HOW}")
    return name


class Connection:
    """A client and the queue's own URL. Its methods block; any thread may use them."""

    def __init__(self, client: Any, queue_url: str) -> None:
        self.client = client
        self.queue_url = queue_url

    def close(self) -> None:
        self.client.close()


def connect(address: Address, *, read_seconds: float, most: int = 10) -> Connection:
    """Blocks. Raises what boto3 raises where the queue cannot be found or reached."""
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError:
        raise missing("a wake-up by SQS", "boto3", "sqs") from None
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=read_seconds,
        max_pool_connections=most,
        retries={"total_max_attempts": 1},
    )
    region = _REGION.fullmatch((address.endpoint or "").partition("://")[2])
    client = boto3.session.Session().client(
        "sqs", endpoint_url=address.endpoint, config=config, region_name=region and region[1]
    )
    try:
        return Connection(client, _queue_url(client, address))
    except BaseException:
        client.close()
        raise


def _queue_url(client: Any, address: Address) -> str:
    if address.endpoint is not None:
        return f"{address.endpoint}/{address.account}/{address.name}"
    return str(client.get_queue_url(QueueName=address.name)["QueueUrl"])
