"""A pooler as far as it matters here: it passes everything on to PostgreSQL and back, but for notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

NOTIFICATION = b"A"


@asynccontextmanager
async def swallowing(url: str) -> AsyncIterator[str]:
    """The URL of a proxy before the server at `url`, while the block lasts."""
    server = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind_reader, behind_writer = await asyncio.open_connection(server.hostname, server.port)
        await asyncio.gather(_pass_on(reader, behind_writer), _pass_answers(behind_reader, writer))

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = proxy.sockets[0].getsockname()[1]
    try:
        yield f"postgresql://{server.username}@127.0.0.1:{port}{server.path}?sslmode=disable"
    finally:
        proxy.close()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def _pass_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Message by message: a letter, the length of the rest, the rest."""
    try:
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
            if head[:1] != NOTIFICATION:
                writer.write(head + body)
                await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()
