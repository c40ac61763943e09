"""How a task lies in the stream: what was submitted (`Spec`), and what has become of it (`Image`).

An image has all that claims, settles and reaping need, also a small payload, so that a claim reads nothing. A larger
one stays with the spec: a replica of a hundred thousand waiting tasks is small.
"""

from __future__ import annotations

from sys import intern
from typing import Annotated, Any

import msgspec

from holdfast.clock import EPOCH
from holdfast.model.backoff import Backoff, backoff_from_text, backoff_text
from holdfast.model.output import Pin
from holdfast.model.task import NewTask, TaskStatus
from holdfast.stores.memory.record import Record

VERSION = 1
PARENTS_MOST = 64
"""In an image. More are with the spec alone: a task with 10,000 parents is written 10,000 times."""
PAYLOAD_MOST = 200
"""With its meta, in the image of a live task."""
UNBORN = 1 << 63


class Spec(msgspec.Struct, array_like=True, gc=False, frozen=True):
    new: NewTask
    created_at: int
    status: str
    """At first: queued, or waiting."""


class Head(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What is needed of a NewTask again and again."""

    name: str
    queue: str
    priority: int
    given: bool
    """It named its own `run_at`."""
    delay_seconds: float
    max_attempts: int
    backoff: str
    """As text: few are distinct, and a replica keeps each once."""
    timeout: float | None
    lease: float | None
    idempotency_key: str | None
    concurrency_key: str | None
    run_id: str | None
    parents: tuple[str, ...]
    on_parent_failure: str
    fail_fast: str | None
    inputs: tuple[Pin, ...]
    many: bool = False
    """The parents are too many to be here."""
    payload: str = ""
    """Empty: it is with the spec alone, and so is the meta."""
    meta: str | None = None


class Image(msgspec.Struct, array_like=True, gc=False, frozen=True):
    version: Annotated[int, msgspec.Meta(le=VERSION)]
    head: Head
    born: int
    """The sequence of its first image; 0: this is the first. Tasks stand in this order."""
    noted: int
    """How many events it has, but for the first."""
    status: TaskStatus
    run_at: int
    created_at: int
    attempt: int
    failures: int
    claimed_by: str | None
    token: str | None
    claim_id: str | None
    lease_length: int
    lease_expires_at: int | None
    settled_token: str | None
    settled_as: str | None
    settled_status: TaskStatus | None
    cancel_requested_at: int | None
    canceled_because: str | None
    result: str | None
    last_error: dict[str, Any] | None
    last_error_at: int
    started_at: int | None
    claimed_at: int | None
    finished_at: int | None
    pending: int
    begun: bool
    counted: bytes
    """Which parents have been counted, a bit each, in their order."""
    pack: str | None = None
    """Of a first image: the large submit with which it came (packs.py)."""
    dependents: int = 0
    """How many edges leave it."""
    back: int = 0
    """Of an ended task under `r.live`: so far before this message stands the one under `end`."""
    sheets: tuple[int, ...] = ()
    """The sequences of those that hold events of it (sheets.py)."""
    sheet: int = 0
    """One more: so far before the image stands the one that was written with it; below 0: behind; 0: there is none."""


class Fact(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An event in the stream; its id tells where it stands (sheets.py)."""

    task_id: str
    at: int
    run_id: str | None
    """On a sheet it is left out: the task knows it."""
    kind: str
    actor: str
    data: str
    """JSON: numbers of any size."""


_backoffs: dict[str, Backoff] = {}
_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_spec = msgspec.msgpack.Decoder(Spec).decode
decode_image = msgspec.msgpack.Decoder(Image).decode
decode_fact = msgspec.msgpack.Decoder(Fact).decode
decode_sheet = msgspec.msgpack.Decoder(list[Fact]).decode


class Kept(Record):
    """A record of a replica, with where its truth stands in the stream."""

    __slots__ = ("bits", "dependents", "lost", "many", "noted", "pack", "rev", "sheets")
    rev: int
    """The sequence of its image; 0: not written yet."""
    noted: int
    pack: str | None
    many: bool
    """Its parents are not all in its image; where `new` does not name them, the spec does."""
    bits: int
    """Which parents have been counted, a bit each."""
    dependents: int
    lost: int
    """How many edges lead to tasks that are gone."""
    sheets: tuple[int, ...]
    """The sequences of those that hold events of it."""

    @property
    def awaited(self) -> bool:
        return self.dependents > 0

    def __lt__(self, other: Record) -> bool:
        """In a heap: the same task once more, or two that are not written yet."""
        return self.new.id < other.new.id


def head_of(new: NewTask, *, many: bool, payload: bool) -> Head:
    here = payload and len(new.payload) + len(new.meta or "") <= PAYLOAD_MOST
    return Head(
        new.name,
        new.queue,
        new.priority,
        new.run_at is not None,
        new.delay_seconds,
        new.max_attempts,
        backoff_text(new.backoff),
        new.timeout,
        new.lease,
        new.idempotency_key,
        new.concurrency_key,
        new.run_id,
        () if many else new.parents,
        new.on_parent_failure,
        new.fail_fast,
        new.inputs,
        many,
        new.payload if here else "",
        new.meta if here else None,
    )


def image_of(record: Kept, *, back: int = 0, sheet: int = 0) -> Image:
    return Image(
        VERSION,
        head_of(record.new, many=record.many, payload=not record.status.terminal),
        record.seq if record.rev else 0,
        record.noted,
        record.status,
        record.run_at,
        record.created_at,
        record.attempt,
        record.failures,
        record.claimed_by,
        record.token,
        record.claim_id,
        record.lease_length,
        record.lease_expires_at,
        record.settled_token,
        record.settled_as,
        record.settled_status,
        record.cancel_requested_at,
        record.canceled_because,
        record.result,
        record.last_error,
        record.last_error_at,
        record.started_at,
        record.claimed_at,
        record.finished_at,
        record.pending,
        record.begun,
        record.bits.to_bytes((record.bits.bit_length() + 7) // 8, "little"),
        record.pack,
        record.dependents,
        back,
        record.sheets,
        sheet,
    )


def new_of(task_id: str, head: Head) -> NewTask:
    """Without payload and meta where they are with the spec. Texts that many tasks share are kept once."""
    backoff = _backoffs.get(head.backoff)
    if backoff is None:
        backoff = _backoffs[head.backoff] = backoff_from_text(head.backoff)
    return NewTask(
        id=task_id,
        name=intern(head.name),
        payload=head.payload,
        queue=intern(head.queue),
        priority=head.priority,
        run_at=EPOCH if head.given else None,
        delay_seconds=head.delay_seconds,
        max_attempts=head.max_attempts,
        backoff=backoff,
        timeout=head.timeout,
        lease=head.lease,
        idempotency_key=head.idempotency_key,
        concurrency_key=head.concurrency_key,
        run_id=head.run_id,
        parents=head.parents,
        on_parent_failure=intern(head.on_parent_failure),
        fail_fast=head.fail_fast,
        inputs=head.inputs,
        meta=head.meta,
    )


def sheets_of(image: Image, rev: int) -> tuple[int, ...]:
    return (*image.sheets, rev - image.sheet) if image.sheet else image.sheets


def fill(record: Kept, image: Image) -> None:
    """Make the record what the image says, which stands at the record's `rev`, but for its links to others."""
    record.noted = image.noted
    record.status = image.status
    record.run_at = image.run_at
    record.attempt = image.attempt
    record.failures = image.failures
    record.claimed_by = image.claimed_by
    record.token = image.token
    record.claim_id = image.claim_id
    record.lease_length = image.lease_length
    record.lease_expires_at = image.lease_expires_at
    record.settled_token = image.settled_token
    record.settled_as = image.settled_as
    record.settled_status = image.settled_status
    record.cancel_requested_at = image.cancel_requested_at
    record.canceled_because = image.canceled_because
    record.result = image.result
    record.last_error = image.last_error
    record.last_error_at = image.last_error_at
    record.started_at = image.started_at
    record.claimed_at = image.claimed_at
    record.finished_at = image.finished_at
    record.pending = image.pending
    record.begun = image.begun
    record.bits = int.from_bytes(image.counted, "little")
    record.dependents = image.dependents
    record.sheets = sheets_of(image, record.rev)


def made(task_id: str, image: Image, rev: int) -> Kept:
    record = Kept(
        seq=image.born or rev,
        new=new_of(task_id, image.head),
        status=image.status,
        run_at=image.run_at,
        created_at=image.created_at,
    )
    record.rev, record.pack = rev, None
    record.many, record.lost = image.head.many, 0
    fill(record, image)
    return record


def born(new: NewTask, run_at: int, now: int) -> Kept:
    """A task that nobody has written yet: the last of all."""
    status = TaskStatus.WAITING if new.parents else TaskStatus.QUEUED
    record = Kept(seq=UNBORN, new=new, status=status, run_at=run_at, created_at=now, pending=len(new.parents))
    record.rev = record.noted = record.bits = record.dependents = record.lost = 0
    record.pack, record.many = None, len(new.parents) > PARENTS_MOST
    record.sheets = ()
    return record
