"""docs/reference/http.md, made from the table of routes: `python -m holdfast.dispatcher.reference > …`.

A test keeps the page current.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from holdfast.dispatcher.bodies import BODY_BYTES, BODY_SECONDS
from holdfast.dispatcher.guard import FRESH_SECONDS
from holdfast.dispatcher.openapi import document
from holdfast.dispatcher.routes import TABLE
from holdfast.dispatcher.wire import PAGE_MOST, TASKS_MOST, WAIT_LONGEST_SECONDS
from holdfast.model.token import Scope

INSTANTS = ("at", "now", "ts", "upto")
BOUND_SHOWN = 1_000_000
Field = tuple[str, str, str]
"""Name, kind, default."""

HEAD = f"""# The dispatcher over HTTP

What `holdfast serve` answers. This page is made from the table of routes, as is the OpenAPI document that the service
shows under `/openapi.json`; a test holds the page to it.

## What holds for every call

- **Tokens**: `Authorization: Bearer hf_…`, made by `holdfast token create --scope work,enqueue` where the store is.
  Without one, or with one that is not good, 401; with too little scope, 403. A revoked token is refused within
  {FRESH_SECONDS:g} s. While a store has no tokens, the dispatcher listens on its own machine only, and whoever is there
  may call.
- **Bodies** are JSON (`content-type: application/json`), at most {BODY_BYTES >> 20} MiB, here whole within
  {BODY_SECONDS:g} s. Fields that a call does not know are refused: a misspelt option must not be ignored. Answers may
  grow; ignore what you do not know. So upgrade dispatchers before those who call them.
- **Values of yours** (payloads, results, meta, rows) come back equal and of the same type: also NUL, big integers,
  −0.0, 200 levels of nesting. Of a key that is given twice the last one counts. Refused: numbers that no double holds
  (1e999), NaN, lone surrogates, integers of more than 4096 bits, more than 1 MiB.
- **Errors** are `application/problem+json`: `type`, `title`, `status`, `code`, `detail`. The code is stable and the
  same as in Python: 404 not found; 409 refused by state or lease; 413 too large; 422 not what the call takes; 503 the
  store is away, try again. Where a call names many things, each has its own `error` in the answer.
- **Repeating** a call after a lost answer is safe, if what it names was made by you: the `id` of a task (a UUIDv7), or
  its `idempotency_key`, the `claim_id`, the lease.
- **Names** of queues, runs, schedules, datasets are free text, so they are never part of a path.
- **Pages** hold 100 records unless `limit` says otherwise, {PAGE_MOST:,} at most. A submit takes {TASKS_MOST:,} tasks.
- **Waiting**: `wait_seconds` of a claim and `wait` of a wake-up, {WAIT_LONGEST_SECONDS:g} s at most. A dispatcher that
  stops answers who waits at once.
- **Streams**: `/v1/events` and `/v1/tasks/{{task_id}}/events` with `Accept: text/event-stream` or `follow=true` are
  server-sent events; `id:` is the event's, and `Last-Event-ID` goes on after it. None is missed, also not one that was
  committed late.

## Scopes

Any one of those that are named will do. `admin` does not include the others. What a worker does besides claiming
(reading its inputs, recording steps) is in `work`; `follow_ups` of a completion, and declaring its schedules, need
`enqueue` as well.
"""


def page() -> str:
    said = msgspec.json.decode(document(TABLE))
    return "\n".join([HEAD, *_scopes(), "", "## Calls", *_Calls(said).lines(), ""])


def _scopes() -> Iterator[str]:
    yield "| call | scope |"
    yield "|---|---|"
    for route in TABLE:
        scopes = "any" if set(route.scopes) == set(Scope) else " or ".join(route.scopes)
        yield f"| `{route.method} {route.path}` | {scopes or 'open'} |"


class _Calls:
    """The forms of the calls, read from the OpenAPI document."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._paths = said["paths"]
        self._schemas = said["components"]["schemas"]

    def lines(self) -> Iterator[str]:
        for route in TABLE:
            operation = self._paths[route.path][route.method.lower()]
            yield f"\n### {route.method} {route.path}\n\n{route.about}"
            yield from _table("Parameter", self._parameters(operation))
            yield from _table("Body", self._fields(route.body))
            yield from _table("Answer", self._fields(route.answer), sent=False)
        yield "\n## Forms\n\nWhat stands within those."
        for name in self._within():
            yield f"\n### {name}"
            yield from _table("Field", self._properties(self._schemas[name]))

    def _within(self) -> list[str]:
        """Forms that are named by others."""
        text = msgspec.json.encode(self._schemas).decode()
        forms = (name for name, schema in self._schemas.items() if "properties" in schema)
        return sorted(name for name in forms if f'schemas/{name}"' in text)

    def _parameters(self, operation: Mapping[str, Any]) -> Iterator[Field]:
        for one in operation["parameters"]:
            yield one["name"], self._kind(one["name"], one["schema"]), _default(one["schema"], one["required"])

    def _fields(self, kind: type | None) -> Iterator[Field]:
        return iter(()) if kind is None else self._properties(self._schemas[kind.__name__])

    def _properties(self, schema: Mapping[str, Any]) -> Iterator[Field]:
        required = schema.get("required", ())
        for name, field in schema.get("properties", {}).items():
            yield name, self._kind(name, field), _default(field, name in required)

    def _kind(self, name: str, field: Mapping[str, Any]) -> str:
        if "$ref" in field:
            form = field["$ref"].rpartition("/")[2]
            schema = self._schemas[form]
            return f"[{form}](#{form.lower()})" if "properties" in schema else self._kind(name, schema)
        if "anyOf" in field:
            return " or ".join(self._kind(name, one) for one in field["anyOf"])
        if "enum" in field:
            return ", ".join(f"`{word}`" for word in field["enum"])
        return self._plain_kind(name, field)

    def _plain_kind(self, name: str, field: Mapping[str, Any]) -> str:
        match field.get("type"):
            case "array":
                return f"list of {self._kind(name, field.get('items', {}))}"
            case "object" if isinstance(field.get("additionalProperties"), dict):
                return f"object of {self._kind('', field['additionalProperties'])}"
            case "string" if field.get("format") == "date-time" or name in INSTANTS or name.endswith("_at"):
                return "instant"
            case None:
                return "any JSON"
            case kind:
                return f"{kind}{_bounds(field)}"


def _table(title: str, fields: Iterable[Field], *, sent: bool = True) -> Iterator[str]:
    rows = [f"| `{name}` | {kind} |{f' {default} |' if sent else ''}" for name, kind, default in fields]
    if rows:
        yield "\n".join(["", f"| {title} | |{' |' if sent else ''}", f"|---|---|{'---|' if sent else ''}", *rows])


def _default(field: Mapping[str, Any], required: bool) -> str:
    if required:
        return "required"
    return f"default `{msgspec.json.encode(field['default']).decode()}`" if "default" in field else ""


def _bounds(field: Mapping[str, Any]) -> str:
    lowest, highest = field.get("minimum"), field.get("maximum")
    if lowest is None or highest is None or highest > BOUND_SHOWN:
        return ""
    return f", {lowest:,} to {highest:,}"


if __name__ == "__main__":
    sys.stdout.write(page())
