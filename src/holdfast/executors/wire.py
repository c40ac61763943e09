"""What a worker and its child processes say to each other: JSON messages, one per line."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from typing import Any

import msgspec

from holdfast.errors import (
    DatasetNotFound,
    HoldfastError,
    InvalidTask,
    LeaseLost,
    NotSupported,
    StoreUnavailable,
)
from holdfast.model.claim import Claim
from holdfast.model.outcome import Emitted, Outcome
from holdfast.model.output import Output, OutputRow
from holdfast.model.task import NewTask
from holdfast.model.workflow import Step
from holdfast.workflows.inputs import Inputs


class Order(msgspec.Struct, frozen=True, kw_only=True, tag="order"):
    """Run this handler. It is named by the registry's own function, never by task data."""

    module: str
    main_path: str | None
    """Where `module` is `__main__` and not importable by name: the file to load it from."""
    qualname: str
    search_path: list[str]
    claim: Claim
    inputs: Inputs
    args: list[Any]
    kwargs: dict[str, Any]


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """The handler should stop."""


class Report(msgspec.Struct, frozen=True, tag="report"):
    """Each of these is answered once, in turn: by its own answer, or by Refused.

    They name their attempt: a thread that a handler has left behind may ask while the next one runs.
    """

    token: str
    kind: str
    data: dict[str, Any]


class Reported(msgspec.Struct, frozen=True, tag="reported"):
    pass


class ReadSteps(msgspec.Struct, frozen=True, tag="read_steps"):
    token: str


class StepsRead(msgspec.Struct, frozen=True, tag="steps_read"):
    steps: list[Step]


class RecordStep(msgspec.Struct, frozen=True, tag="record_step"):
    token: str
    name: str
    result: str


class StepRecorded(msgspec.Struct, frozen=True, tag="step_recorded"):
    step: Step


class ReadPins(msgspec.Struct, frozen=True, tag="read_pins"):
    token: str


class PinsRead(msgspec.Struct, frozen=True, tag="pins_read"):
    versions: dict[str, int | None]


class ReadRows(msgspec.Struct, frozen=True, tag="read_rows"):
    token: str
    dataset: str
    version: int
    after: str | None


class RowsRead(msgspec.Struct, frozen=True, tag="rows_read"):
    rows: list[OutputRow]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    code: str
    message: str

    def error(self) -> HoldfastError:
        return _REFUSALS.get(self.code, HoldfastError)(self.message)


_REFUSALS: dict[str, type[HoldfastError]] = {
    kind.code: kind for kind in (LeaseLost, InvalidTask, StoreUnavailable, NotSupported, DatasetNotFound)
}


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    outcome: Outcome
    emitted: list[Emitted]
    follow_ups: list[NewTask]
    outputs: list[Output]


Asked = Report | ReadSteps | RecordStep | ReadPins | ReadRows
Answer = Reported | StepsRead | StepRecorded | PinsRead | RowsRead | Refused
ToChild = Order | Ask | Answer
FromChild = Asked | Done

to_child: msgspec.json.Decoder[ToChild] = msgspec.json.Decoder(ToChild)
from_child: msgspec.json.Decoder[FromChild] = msgspec.json.Decoder(FromChild)


class Line:
    """One end of the connection."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._sending = threading.Lock()
        self._stream = end.makefile("rwb")

    def send(self, message: msgspec.Struct) -> bool:
        """False if the other end is gone."""
        try:
            with self._sending:
                self._stream.write(msgspec.json.encode(message) + b"\n")
                self._stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def receive(self) -> bytes:
        """One message; empty when the other end is gone."""
        try:
            return self._stream.readline()
        except (OSError, ValueError):
            return b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.close()
        self._end.close()


def main_origin() -> tuple[str, str | None]:
    """How another process finds what is `__main__` here: a module's name, or else a file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        name: str = spec.name
        return (name.removesuffix(".__main__") + ".__main__" if name.endswith(".__main__") else name), None
    return "__main__", getattr(main, "__file__", None)
