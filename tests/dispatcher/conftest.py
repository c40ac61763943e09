"""A dispatcher over each store that can stand behind one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores.open import store_factory
from holdfast.stores.protocol import StoreFactory
from tests import postgres_server
from tests.dispatcher.support import Running, dispatcher


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with dispatcher(factory=_factory(request.param, tmp_path)) as service:
        yield service


def _factory(kind: str, folder: Path) -> StoreFactory:
    match kind:
        case "sqlite":
            return store_factory(f"sqlite:///{folder}/tasks.db")
        case "postgres":
            return store_factory(postgres_server.server().url, schema=postgres_server.fresh_schema())
        case _:
            return store_factory("memory://")


@pytest.fixture
def memory() -> Iterator[Running]:
    with dispatcher() as service:
        yield service
