"""A dispatcher for the demo: `holdfast serve` in a process of its own, and the URL by which the demo calls it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from holdfast import ids
from holdfast.app import Holdfast
from holdfast.errors import HoldfastError
from holdfast.model.token import Scope
from holdfast.policy import tokens

STOP_SECONDS = 10.0


class Said(msgspec.Struct):
    url: str


@contextmanager
def dispatcher(store_url: str) -> Iterator[str]:
    """In front of the store, until the block ends: the demo itself then has no access to the database."""
    token = _token(store_url)
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--json", "--log-level", "error"]
    process = subprocess.Popen(  # noqa: S603
        command, env=os.environ | {"HOLDFAST_URL": store_url}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        if not said:
            raise HoldfastError("the dispatcher of the demo did not start; try: holdfast serve --port 0")
        yield msgspec.json.decode(said, type=Said).url.replace("://", f"://{token}@", 1)
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _token(store_url: str) -> str:
    new, shown = tokens.made(
        "demo",
        [scope.value for scope in Scope],
        lifetime_seconds=3600.0,
        token_hex=ids.token_hex,
        token_urlsafe=ids.token_urlsafe,
    )

    async def add() -> None:
        async with Holdfast(store_url) as app:
            await app.client.store.add_token(new)

    asyncio.run(add())
    return shown
