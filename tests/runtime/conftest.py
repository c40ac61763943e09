"""An app on a fresh store for each test: in memory, or (for what a store could break) on the others as well, also
through a dispatcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests import postgres_server
from tests.dispatchers import Serving, upkeep


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite", "postgres", "remote"])
def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    if request.param != "remote":
        with _opened(request.param, tmp_path) as opened:
            yield opened
        return
    with (
        Holdfast("memory://") as behind,
        Serving(behind.connections.factory, upkeep=upkeep) as serving,
        Holdfast(serving.url) as opened,
    ):
        yield opened


def _opened(store: str, folder: Path) -> Holdfast:
    match store:
        case "memory":
            return Holdfast("memory://")
        case "sqlite":
            return Holdfast(f"sqlite:///{folder}/tasks.db")
        case _:
            return Holdfast(postgres_server.server().url, schema=postgres_server.fresh_schema())
