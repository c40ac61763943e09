"""The routes between the nodes of a NATS cluster, each through a proxy: a node can be cut off from the others while
clients still reach all of them.

*Held*, a route stands still, as where packets are lost: nobody is told, and what was under way arrives once it flows
again, however old it is then. *Broken*, its connections end, and no new one can be made.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from itertools import permutations
from typing import Literal

from tests.cut_proxy import CutProxy, Link, _held_port

Cut = Literal["held", "broken"]


class Routes:
    """One proxy for each node and each other one that it calls."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._routes: dict[tuple[int, int], Route] = {}
        self._nobody: list[socket.socket] = []
        self._cut: dict[Route, Cut] = {}

    def lay(self, ports: list[int]) -> None:
        """Between nodes that listen there."""
        for here, there in permutations(range(len(ports)), 2):
            self._routes[here, there] = self._open.enter_context(Route(ports[there]))
        self._nobody = [self._open.enter_context(_held_port()) for _ in ports]

    def of(self, node: int) -> list[str]:
        """Where it finds the others."""
        return [route.url for (here, _), route in self._routes.items() if here == node]

    def nowhere(self, node: int) -> str:
        """What it tells others of itself: they would go past the proxies."""
        return f"127.0.0.1:{self._nobody[node].getsockname()[1]}"

    def cut_off(self, node: int, cut: Cut) -> None:
        """From all others, both ways."""
        for ends, route in self._routes.items():
            if node in ends:
                route.hold() if cut == "held" else route.shut()
                self._cut[route] = cut

    def heal(self) -> None:
        for route, cut in self._cut.items():
            route.flow() if cut == "held" else route.open()
        self._cut.clear()

    def close(self) -> None:
        self.heal()
        self._open.close()


class Route(CutProxy):
    def __init__(self, port: int) -> None:
        super().__init__(f"nats://127.0.0.1:{port}", link=RouteLink)
        self.flows = asyncio.Event()
        self.flows.set()

    def hold(self) -> None:
        self._loop.call_soon_threadsafe(self.flows.clear)

    def flow(self) -> None:
        self._loop.call_soon_threadsafe(self.flows.set)


class RouteLink(Link):
    async def _client_side(self) -> None:
        await self._pump(self._from_client, self._to_server)

    async def _server_side(self, from_server: asyncio.StreamReader) -> None:
        await self._pump(from_server, self._to_client)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(self._proxy, Route)
        while data := await reader.read(1 << 16):
            await self._proxy.flows.wait()
            writer.write(data)
            await writer.drain()
