"""What the OpenAPI document says beyond the types on the wire: rules between fields, and bounds that policy has.

By name of the form; merged into its schema. They are what admission.py and policy/ refuse, in the words of JSON Schema.
What those words cannot say is listed, with its reasons, in tests/dispatcher/test_openapi.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.dispatcher.admission import EVENTS_MOST, FOLLOW_UPS_MOST, NAMES_MOST, PROGRESS, PROGRESS_FIELDS
from holdfast.dispatcher.wire import Name
from holdfast.model.outbox import Effect
from holdfast.policy.admission import SPAN_LONGEST
from holdfast.policy.backoff import LONGEST_SECONDS
from holdfast.policy.firing import EVERY_SHORTEST
from holdfast.policy.limits import MOST
from holdfast.policy.outputs import FROM_PARENT, PINS_MOST
from holdfast.policy.sinks import MOST_NAMES

NULL: Mapping[str, Any] = {"type": "null"}
DELAY: Mapping[str, Any] = {"minimum": 0, "maximum": LONGEST_SECONDS}
SHARE: Mapping[str, Any] = {"minimum": 0, "maximum": 1}
SMALL: Mapping[str, Any] = {"type": "object"}
NAMES: Mapping[str, Any] = {"maxItems": NAMES_MOST}
NAME: Mapping[str, Any] = msgspec.json.schema(Name)
OWN_KIND: Mapping[str, Any] = {"not": {"pattern": r"^(task|run)\."}}
VERSION: Mapping[str, Any] = {"anyOf": [{"type": "integer", "minimum": 1}, {"const": FROM_PARENT}]}
RATE = r"^\s*0{0,13}([1-9]\d{0,5}|1000000)\s*/\s*\d{0,20}\s*(s|sec|second|m|min|minute|h|hour|d|day)s?\s*$"


def _fields(*required: str, **fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"properties": fields} | ({"required": list(required)} if required else {})


def _either(*ways: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": list(ways)}


NEW_TASK = _fields(
    meta={"anyOf": [SMALL, NULL]},
    inputs={"maxProperties": PINS_MOST, "propertyNames": NAME, "additionalProperties": VERSION},
) | {
    "allOf": [
        _either(_fields(run_at=NULL), _fields(delay_seconds={"const": 0})),
        _either(_fields(fail_fast=NULL), _fields("run_id", run_id={"type": "string"})),
        _either(
            _fields(inputs={"additionalProperties": {"type": "integer"}}), _fields("parents", parents={"minItems": 1})
        ),
    ]
}
TEMPLATE = _fields(run_at=NULL, delay_seconds={"const": 0}, idempotency_key=NULL, parents={"maxItems": 0})

RULES: Mapping[str, Mapping[str, Any]] = {
    "NewTaskIn": NEW_TASK,
    "SettlementIn": _fields(events={"maxItems": EVENTS_MOST}, follow_ups={"maxItems": FOLLOW_UPS_MOST})
    | _either(
        _fields(status={"enum": ["completed", "canceled", "released"]}),
        _fields("error", status={"const": "failed"}, error={"type": "object"}),
        _fields("delay_ms", status={"const": "snoozed"}, delay_ms={"type": "number"}),
    ),
    "EmittedIn": _fields(kind=OWN_KIND, payload=SMALL),
    "ReportCall": _fields(data=SMALL)
    | _either(
        _fields(kind=OWN_KIND),
        _fields(kind={"const": PROGRESS}, data={"propertyNames": {"enum": sorted(PROGRESS_FIELDS)}}),
    ),
    "EnrollCall": _fields(names=NAMES, queues=NAMES),
    "LimitCall": _fields(
        rate={"anyOf": [{"type": "string", "pattern": RATE}, {"$ref": "#/components/schemas/Rate"}, NULL]}
    ),
    "Rate": _fields(count={"minimum": 1, "maximum": MOST}, period={"minimum": 0.001, "maximum": SPAN_LONGEST}),
    "Exponential": _fields(base=DELAY, cap=DELAY, jitter=SHARE),
    "Fixed": _fields(delay=DELAY, jitter=SHARE),
    "Linear": _fields(step=DELAY, cap=DELAY, jitter=SHARE),
    "DelayList": _fields(delays={"minItems": 1, "items": {"type": "number", **DELAY}}, jitter=SHARE),
    "TimingIn": _either(
        _fields("cron", cron={"type": "string"}, every=NULL),
        _fields("every", every={"type": "number", "minimum": EVERY_SHORTEST}, cron=NULL, timezone={"const": "UTC"}),
    ),
    "DeclareScheduleCall": _fields(task={"allOf": [TEMPLATE]}),
    "SinkCall": _fields(kinds={"minItems": 1, "maxItems": MOST_NAMES}, queues={"minItems": 1, "maxItems": MOST_NAMES})
    | _either(
        _fields(effect={"const": Effect.ROUTE}, url={"pattern": "^https?:"}),
        _fields(effect={"const": Effect.WAKE}, url={"pattern": r"^(sqs|sqs\+http|nats):"}),
    ),
}


def ruled(schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """These schemas, with the rules."""
    return {name: _merged(schema, RULES[name]) if name in RULES else schema for name, schema in schemas.items()}


def _merged(schema: Mapping[str, Any], rule: Mapping[str, Any]) -> dict[str, Any]:
    ruled_fields = {name: {**schema["properties"][name], **said} for name, said in rule.get("properties", {}).items()}
    return {**schema, **rule, "properties": {**schema["properties"], **ruled_fields}}
