"""An app on a fresh store for each test: in memory, or (for what a store could break) on SQLite as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


@pytest.fixture(params=["memory", "sqlite"])
def any_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
    with Holdfast(url) as opened:
        yield opened
