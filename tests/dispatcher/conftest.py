"""A dispatcher over each store that can stand behind one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dispatcher.support import Running, dispatcher, factory_of


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with dispatcher(factory=factory_of(request.param, tmp_path)) as service:
        yield service


@pytest.fixture
def memory() -> Iterator[Running]:
    with dispatcher() as service:
        yield service
