"""A dispatcher over each store that can stand behind one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dispatcher.support import Running, dispatcher


@pytest.fixture(params=["memory", "sqlite"])
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    with dispatcher(url) as service:
        yield service


@pytest.fixture
def memory() -> Iterator[Running]:
    with dispatcher() as service:
        yield service
