"""The line to a dispatcher: one aiohttp session per handle and event loop, every call bounded in time and size.

A call comes back with the body of its answer, or raises: what the dispatcher refuses under the same name and words as
there (problem+json), and everything that leaves open whether it happened as StoreUnavailable. TLS is verified. Nobody
is led elsewhere with our token: redirects are not followed, and the environment's proxies are not asked.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from holdfast import errors
from holdfast.errors import Forbidden, HoldfastError, PayloadTooLarge, StoreClosed, StoreUnavailable, Unauthorized
from holdfast.stores.remote.options import Options
from holdfast.version import __version__

CONNECTIONS = 32
KEEP_ALIVE_SECONDS = 15.0
"""Less than a dispatcher keeps them (75 s): the one who sends must be the one who hangs up."""
CONNECT_SECONDS = 5.0
AT_ONCE_BYTES = 1 << 20
"""Larger bodies are sent piece by piece, so that the loop does not stand still for them."""

_LASTING = (aiohttp.ClientSSLError, aiohttp.InvalidURL)
"""Waiting does not heal these."""


_inherited: list[aiohttp.ClientSession] = []
"""Of the process before a fork: kept, unused; closing them here would be told to its event loop."""


class Problem(msgspec.Struct, frozen=True):
    """What a dispatcher says of a refusal; other servers on the way say nothing of the kind."""

    code: str = ""
    detail: str = ""


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading an answer raises that is none of ours."""

_problems = msgspec.json.Decoder(Problem)


def _tree(kind: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [kind, *(inner for child in kind.__subclasses__() for inner in _tree(child))]


_BY_CODE = {kind.code: kind for kind in _tree(HoldfastError) if kind.__module__ == errors.__name__}


def error_of(code: str, words: str) -> HoldfastError:
    """The error with this code; one that is not known yet keeps its words."""
    return _BY_CODE.get(code, HoldfastError)(words)


class Line:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._loop: asyncio.AbstractEventLoop | None = None
        self._session: aiohttp.ClientSession | None = None
        self._pid = 0
        self._closed = False
        self._timeout = aiohttp.ClientTimeout(options.timeout_seconds, sock_connect=CONNECT_SECONDS)

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        query: Mapping[str, str] | None = None,
        *,
        seconds: float | None = None,
    ) -> bytes:
        """`path` is quoted already; `query` is not."""
        timeout = self._timeout if seconds is None else aiohttp.ClientTimeout(seconds, sock_connect=CONNECT_SECONDS)
        url = URL(self._options.base + path, encoded=True)
        try:
            async with self._open().request(
                method,
                url.with_query(query) if query else url,
                data=body if body is None or len(body) <= AT_ONCE_BYTES else BytesIO(body),
                timeout=timeout,
                allow_redirects=False,
            ) as answer:
                status, content = answer.status, await self._read(answer)
        except TimeoutError:
            waited = timeout.total if seconds is None else seconds
            raise StoreUnavailable(f"{self._options.label} did not answer within {waited:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            words = f"{self._options.label} cannot be reached: {_described(error)}"
            raise StoreUnavailable(words, lasting=isinstance(error, _LASTING)) from None
        if status < 300:
            return content
        raise self._refusal(status, content)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        """Bounded: what answers may be anything, and we are told to wait for all of it."""
        most = self._options.answer_bytes
        parts: list[bytes] = []
        size = 0
        async for part in answer.content.iter_any():
            size += len(part)
            if size > most:
                answer.close()
                raise PayloadTooLarge(
                    f"{self._options.label} answers with more than {most:,} bytes; ask for less, or open it with a "
                    "larger answer_bytes="
                )
            parts.append(part)
        return b"".join(parts)

    def _refusal(self, status: int, content: bytes) -> HoldfastError:
        label = self._options.label
        try:
            problem = _problems.decode(content)
        except UNREADABLE:
            problem = Problem()
        match status:
            case 401:
                return Unauthorized(self._unknown(problem.detail))
            case 403:
                return Forbidden(problem.detail or f"{label} does not let this token do that")
            case 413:  # also by a proxy on the way, which has no words of ours: to wait would not heal it
                return PayloadTooLarge(problem.detail or f"{label} does not take a body as large as this")
        if problem.code in _BY_CODE:
            return error_of(problem.code, problem.detail)
        if status >= 500:
            return StoreUnavailable(f"{label} answered {status}: {problem.detail or 'nothing more'}")
        words = problem.detail or "no dispatcher of ours answers so; does the URL lead to one?"
        return StoreUnavailable(f"{label} answered {status}: {words}", lasting=True)

    def _unknown(self, detail: str) -> str:
        label = self._options.label
        if self._options.token is not None:
            return f"{label} refuses the token that was given: {detail or 'it does not say why'}"
        return f"{label} needs a token; give it in HOLDFAST_TOKEN, as token=, or in the URL (http://TOKEN@host)"

    # The session

    def ensure_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self._options.label} was closed; open it again to go on")

    def _open(self) -> aiohttp.ClientSession:
        self.ensure_open()
        loop = asyncio.get_running_loop()
        if self._session is None or self._loop is not loop:
            self._leave_behind()
            self._loop, self._pid, self._session = loop, os.getpid(), self._new_session()
        return self._session

    def _new_session(self) -> aiohttp.ClientSession:
        headers = {
            "User-Agent": f"holdfast/{__version__}",
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
        }
        if self._options.token is not None:
            headers["Authorization"] = f"Bearer {self._options.token}"
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=KEEP_ALIVE_SECONDS),
            headers=headers,
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )

    async def close(self) -> None:
        self._closed = True
        if self._session is None or self._loop is not asyncio.get_running_loop():
            self._leave_behind()
            return
        session, self._session = self._session, None
        await session.close()
        await asyncio.sleep(0)  # a call that was canceled just now closes its socket in the loop's next turn

    def __del__(self) -> None:
        """A handle that nobody closed goes with its loop, in silence: aiohttp would log that as an error."""
        with suppress(Exception):
            self._leave_behind()

    def _leave_behind(self) -> None:
        """A session whose loop is not this one: of the process before a fork, or of a loop that has ended."""
        session, self._session = self._session, None
        if session is None or self._loop is None:
            return
        if self._pid != os.getpid():
            _inherited.append(session)
        elif self._loop.is_closed():
            _cut(session)
        else:
            with suppress(RuntimeError):  # closed just now
                asyncio.run_coroutine_threadsafe(session.close(), self._loop)


def _cut(session: aiohttp.ClientSession) -> None:
    """End what belongs to a loop that is closed: aiohttp's own ways out all go through the loop."""
    connector = session.connector
    session.detach()
    if connector is None:
        return
    for idle in connector._conns.values():
        for protocol, _ in idle:
            transport: Any = protocol.transport
            sock = getattr(transport, "_sock", None)  # asyncio's; uvloop closes its own with the loop
            if sock is not None:
                sock.close()
                transport._sock = None
    for _ in connector.close().__await__():
        return


def _described(error: BaseException) -> str:
    """aiohttp's errors may name the URL, which has no token in it: that is a header."""
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
