"""What `holdfast doctor` asks of a NATS store: is it new enough, and is what it acknowledges kept?"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import Request, urlopen

import msgspec

from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.stores.nats.reader import damaged
from holdfast.stores.nats.stream import OLDEST_SERVER, SUBMIT_SHARE, dotted, server_version
from holdfast.stores.nats.wire import BATCH_MOST, Missing

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

Check = tuple[str, bool | None, str]

PAYLOAD_MOST = 1 << 20
"""Of a task's payload and of a result, by the contract."""
MONITOR_SECONDS = 5.0
NEARLY = 0.8
UNREADABLE_NAMED = 5
GUARDED = (
    "subjects",
    "storage",
    "retention",
    "discard",
    "max_msgs_per_subject",
    "allow_atomic",
    "allow_direct",
    "allow_msg_ttl",
)
LIMITS = ("max_msgs", "max_age", "max_bytes", "max_msg_size", "max_consumers")


async def checked(ledger: Ledger) -> list[Check]:
    try:
        client = await ledger.wire.client()
        info = await ledger.stream.info()
    except StoreUnavailable as error:
        return [("reachable", False, str(error))]
    except Missing:
        return [("stream", False, f"there is no stream {ledger.stream.name}; `holdfast migrate` makes it")]
    config: dict[str, Any] = info["config"]
    return [
        _version(server_version(client)),
        _replicas(config["num_replicas"], info.get("cluster", {})),
        await _sync(ledger.options.monitor),
        _config(config, ledger.stream.config(config["num_replicas"])),
        _payload(client.max_payload),
        _room(info["state"]["bytes"], config.get("max_bytes", -1)),
        await _messages(ledger),
    ]


def _version(version: tuple[int, ...]) -> Check:
    if version < OLDEST_SERVER:
        return "server", False, f"{dotted(version)} is too old; atomic batches hold from {dotted(OLDEST_SERVER)} on"
    return "server", True, f"{dotted(version)}; {dotted(OLDEST_SERVER)} or newer is needed"


def _replicas(replicas: int, cluster: dict[str, Any]) -> Check:
    if replicas < 3:
        copies = "1 replica" if replicas == 1 else f"{replicas} replicas"
        return "durable", None, f"{copies}: what is acknowledged is lost with a server's disk; three are safe"
    late = [peer["name"] for peer in cluster.get("replicas", []) if peer.get("offline") or not peer.get("current")]
    if late:
        return "durable", None, f"{replicas} replicas, of which {len(late)} are away or behind: {', '.join(late)}"
    return "durable", True, f"{replicas} replicas, all of them current"


async def _sync(monitor: str | None) -> Check:
    """Only the monitoring port shows it, of one server."""
    hint = "give monitor=http://host:8222 in the URL to see it; without `sync_interval: always` a power cut loses tasks"
    if monitor is None:
        return "sync", None, f"a client cannot see how the servers sync; {hint}"
    parts = urlsplit(monitor)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    try:
        text = await asyncio.to_thread(_fetched, parts)
        jetstream = msgspec.json.decode(text).get("jetstream", {}).get("config", {})
    except (OSError, ValueError, HTTPException, AttributeError) as error:
        why = type(error).__name__ if "@" in str(error) else str(error)
        return "sync", None, f"{shown} does not say ({why}); {hint}"
    if not jetstream:
        return "sync", None, f"{shown} has no JetStream; {hint}"
    if jetstream.get("sync_always"):
        return "sync", True, "every write is synced before it is acknowledged"
    every = int(jetstream.get("sync_interval", 0)) / 1e9
    return "sync", False, f"synced every {every:g} s only: a power cut loses tasks; set `sync_interval: always`"


def _fetched(monitor: SplitResult) -> bytes:
    credentials, _, host = monitor.netloc.rpartition("@")
    request = Request(f"{monitor.scheme}://{host}{monitor.path}/varz")  # noqa: S310  the operator's own http URL
    if credentials:
        request.add_header("Authorization", f"Basic {b64encode(unquote(credentials).encode()).decode()}")
    with urlopen(request, timeout=MONITOR_SECONDS) as answer:  # noqa: S310  the same
        body: bytes = answer.read(1 << 20)
        return body


def _config(found: dict[str, Any], wanted: dict[str, Any]) -> Check:
    limits = [name for name in LIMITS if found.get(name, -1) not in (-1, 0)]
    if found.get("discard") == "new" and "max_age" not in limits:
        refusing, losing = limits, []
    else:
        refusing, losing = [], limits
    if losing:
        return "stream", False, f"{', '.join(losing)} is set: the server will throw tasks away; remove it"
    wrong = [name for name in GUARDED if found.get(name) != wanted[name]]
    if wrong:
        return "stream", False, f"{', '.join(wrong)} is not what it was made with; somebody has changed the stream"
    if refusing:
        bounds = ", ".join(f"{name} {found[name]:,}" for name in refusing)
        return "stream", None, f"bounded by {bounds}: beyond that nothing is taken, ends of tasks neither"
    return "stream", True, "as it was made"


def _room(used: int, most: int) -> Check:
    """A stream's own limit is looked at before a step; the servers' may be met in the midst of one, and tear it."""
    if most <= 0:
        hint = "a server that is full itself may tear a step: set max_bytes below its max_file_store"
        return "room", None, f"{used:,} bytes, and the stream has no limit of its own; {hint}"
    if used > SUBMIT_SHARE * most:
        return "room", False, f"{used:,} of {most:,} bytes: no more tasks are taken; raise max_bytes"
    return "room", True if used < NEARLY * most else None, f"{used:,} of {most:,} bytes"


async def _messages(ledger: Ledger) -> Check:
    """Of what every worker follows: one that cannot be read holds up all of them."""
    try:
        await ledger.fresh()
    except HoldfastError as error:
        return "messages", False, _what_to_do(ledger) or str(error)
    for name in sorted(ledger.following.lost):
        return "messages", False, f"{len(ledger.following.lost):,} damaged: {damaged(ledger.stream.name, name)}"
    return "messages", True, "all that workers follow can be read"


def _what_to_do(ledger: Ledger) -> str | None:
    there = sorted(ledger.following.feed.unreadable.items())
    if not there:
        return None
    named = ", ".join(f"{seq} ({subject})" for subject, seq in there[:UNREADABLE_NAMED])
    return (
        f"{len(there):,} cannot be read: {named}. If a newer Holdfast works here, run that one; if not, they are "
        f"damaged: `nats stream rmm {ledger.stream.name} <number>` gives up what each says, and `holdfast doctor "
        "--repair` what belongs to it; work goes on then"
    )


def _payload(most: int) -> Check:
    if most < PAYLOAD_MOST + 4096:
        return "payloads", None, f"a task and its payload take {most:,} bytes at most; raise max_payload to take 1 MiB"
    return "payloads", True, f"messages of {most:,} bytes; an atomic step has {BATCH_MOST:,}"
