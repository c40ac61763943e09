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
from schemathesis.checks import positive_data_acceptance

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
schema = schemathesis.openapi.from_dict(DOCUMENT).exclude(path="/readyz")  # which is not, when draining


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
    with dispatcher(factory=factory, always_tokens=True) as running:
        running.behind(lambda store: store.add_token(NEW))
        running.token = TOKEN
        running.drain()
        yield running


@pytest.fixture(scope="module")
def draining() -> Iterator[Running]:
    with about_to_stop(store_factory("memory://")) as running:
        yield running


@pytest.fixture(scope="module", params=["memory", "sqlite", "postgres"])
def draining_any(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with about_to_stop(factory_of(request.param, tmp_path_factory.mktemp("store"))) as running:
        yield running


def violations(case: Case, running: Running) -> None:
    """What the document allows may still be refused: that a schedule has a cron expression or an interval, it cannot
    say.
    """
    case.call_and_validate(
        base_url=running.url, session=SESSION, timeout=20, excluded_checks=[positive_data_acceptance]
    )


few = settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
many = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@schema.parametrize()
@few
def test_no_call_breaks_what_the_document_says(case: Case, draining: Running) -> None:
    violations(case, draining)


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
