"""The OpenAPI document is true: schemathesis, which knows nothing but it, finds no violation and no 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import negative_data_rejection, not_a_server_error, positive_data_acceptance

from holdfast.dispatcher import reference
from holdfast.dispatcher.openapi import document
from holdfast.dispatcher.routes import TABLE
from holdfast.model.token import Scope
from holdfast.policy import tokens
from holdfast.stores.open import store_factory
from holdfast.stores.protocol import StoreFactory
from tests.dispatcher.support import Running, dispatcher, factory_of

REFERENCE = Path(__file__).parent.parent.parent / "docs" / "reference" / "http.md"
DOCUMENT = msgspec.json.decode(document(TABLE))
schema = schemathesis.openapi.from_dict(DOCUMENT)

UNSAID = {
    "POST /v1/tasks": ("does not stand before it in the same submit", "do not belong to the same run"),
    "POST /v1/schedules/fire": ("does not stand before it in the same submit", "do not belong to the same run"),
    "POST /internal/task-complete": ("does not stand before it in the same submit", "do not belong to the same run"),
    "GET /v1/tasks": ("which does not exist; start from the first page",),
    "GET /v1/runs": ("which does not exist; start from the first page",),
    "POST /v1/queues/limit": ("the rate's period is",),
    "POST /v1/schedules": ("cron expression", "time zone"),
    "POST /v1/sinks": ("a webhook's", "the sink's URL"),
}
"""What no JSON Schema can say, by call and words of the refusal: that an item of a list names one before it; that a
record exists; that the product of a number and a unit, both in a text, is bounded; that a text is a cron expression
that fires, the name of a time zone that this machine knows, or a URL of which every part is fit. Everything else that
the document allows is taken.
"""

Case = schemathesis.Case[Any]
SESSION = requests.Session()
NEW, TOKEN = tokens.made(
    "all", list(Scope), lifetime_seconds=None, token_hex=lambda size: "ab" * size, token_urlsafe=lambda _: "x" * 43
)


@schema.auth()
class ByToken:
    def get(self, case: Case, context: schemathesis.AuthContext) -> str:
        return TOKEN

    def set(self, case: Case, data: str, context: schemathesis.AuthContext) -> None:
        case.headers["Authorization"] = f"Bearer {data}"


@contextmanager
def about_to_stop(factory: StoreFactory) -> Iterator[Running]:
    """Calls that wait are answered, and streams end, at once."""
    with guarded(factory) as running:
        running.drain()
        yield running


@contextmanager
def guarded(factory: StoreFactory) -> Iterator[Running]:
    with dispatcher(factory=factory, always_tokens=True) as running:
        running.behind(lambda store: store.add_token(NEW))
        running.token = TOKEN
        yield running


@pytest.fixture(scope="module")
def ready() -> Iterator[Running]:
    with guarded(store_factory("memory://")) as running:
        yield running


@pytest.fixture(scope="module")
def draining() -> Iterator[Running]:
    with about_to_stop(store_factory("memory://")) as running:
        yield running


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def draining_any(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with about_to_stop(factory_of(request.param, tmp_path_factory.mktemp("store"))) as running:
        yield running


@schema.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    """JSON Schema takes 1.0 for an integer. We do not: whoever means a whole number writes one."""
    return whole(body)


def whole(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def violations(case: Case, running: Running) -> None:
    answer = case.call(base_url=running.url, session=SESSION, timeout=20)
    excluded = [positive_data_acceptance] if is_unsaid(case, answer) else []
    if case.path == "/readyz" and running.hall.draining:
        excluded.append(not_a_server_error)  # 503 is its answer
    if case.path == "/v1/settlements" and b'"error":{"code":' in answer.content:
        excluded.append(negative_data_rejection)  # each item is refused for itself
    case.validate_response(answer, excluded_checks=excluded)


def is_unsaid(case: Case, answer: schemathesis.Response) -> bool:
    words = UNSAID.get(case.operation.label, ())
    return answer.status_code == 422 and any(word in answer.json()["detail"] for word in words)


few = settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
many = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@schema.parametrize()
@few
def test_no_call_breaks_what_the_document_says(case: Case, draining: Running) -> None:
    violations(case, draining)


@schema.include(path="/readyz").parametrize()
@few
def test_who_is_ready_says_so_as_the_document_has_it(case: Case, ready: Running) -> None:
    violations(case, ready)


@pytest.mark.soak
@schema.parametrize()
@many
def test_no_call_of_very_many_breaks_it_on_any_store(case: Case, draining_any: Running) -> None:
    violations(case, draining_any)


def test_the_document_is_served(draining: Running) -> None:
    answer = draining.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == DOCUMENT


def test_the_document_has_every_route() -> None:
    said = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert said == {(route.method, route.path) for route in TABLE}
    assert len({route.name for route in TABLE}) == len(TABLE)


def test_the_reference_is_current() -> None:
    """`python -m holdfast.dispatcher.reference > docs/reference/http.md` makes it so."""
    assert REFERENCE.read_text() == reference.page()
