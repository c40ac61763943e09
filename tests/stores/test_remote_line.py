"""The line to a dispatcher, against servers that are none: what is refused, what is unavailable, what stays secret."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast import Holdfast, errors, ids
from holdfast.dispatcher.routes import TABLE
from holdfast.errors import (
    HoldfastError,
    InvalidTask,
    NotSupported,
    PayloadTooLarge,
    StoreClosed,
    StoreUnavailable,
)
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask
from holdfast.stores.open import store_factory
from holdfast.stores.remote import listener
from holdfast.stores.remote.caller import ROUTES
from holdfast.stores.remote.line import error_of
from holdfast.stores.remote.options import parsed
from holdfast.stores.remote.store import RemoteStore
from holdfast.wakeups.bell import Bell
from tests.dispatchers import Serving

TOKEN = "hf_0123456789abcdef_this-is-the-secret-part"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on this loop that answers everything so; where it is."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def store_on(answer: Answer, **options: Any) -> AsyncIterator[RemoteStore]:
    async with serving(answer) as host:
        store = RemoteStore(parsed(f"http://{host}", options))
        try:
            yield store
        finally:
            await store.close()


def saying(status: int, text: str = "", **headers: str) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    return answer


def saying_bytes(status: int, body: bytes) -> Answer:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    return answer


def own_certificate(folder: Path) -> Path:
    """For 127.0.0.1, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl, which makes the certificate, is missing")
    made, key = folder / "made.pem", folder / "key.pem"
    options = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    command = [
        openssl,
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        str(key),
        "-out",
        str(made),
        *options,
    ]
    subprocess.run(command, check=True, capture_output=True)
    made.write_text(made.read_text() + key.read_text())
    return made


def refusal_of(answer: Answer, **options: Any) -> HoldfastError:
    async def use() -> HoldfastError:
        async with store_on(answer, **options) as store:
            with pytest.raises(HoldfastError) as refused:
                await store.now()
            return refused.value

    return asyncio.run(use())


def test_what_is_called_is_in_the_table_of_the_dispatcher() -> None:
    table = {route.name: (route.method, route.path) for route in TABLE}
    assert {name: table.get(name) for name in ROUTES} == ROUTES


# What is refused, and how


def test_a_problem_is_raised_as_the_error_of_its_code_with_its_words() -> None:
    problem = '{"type": "x", "title": "x", "status": 409, "code": "lease_lost", "detail": "attempt 3 is running"}'
    refused = refusal_of(saying(409, problem))
    assert (type(refused), str(refused)) == (errors.LeaseLost, "attempt 3 is running")


def test_every_error_comes_back_from_its_code() -> None:
    for name in ("TaskFailed", "PayloadTooLarge", "StoreUnavailable", "DatasetNotFound", "CycleError"):
        kind = getattr(errors, name)
        assert type(error_of(kind.code, "words")) is kind
    assert type(error_of("of_a_later_version", "words")) is HoldfastError


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_in_trouble_is_unavailable_for_now(status: int) -> None:
    refused = refusal_of(saying(status, "<html>bad gateway</html>"))
    assert isinstance(refused, StoreUnavailable)
    assert not refused.lasting
    assert str(status) in str(refused)


def test_who_is_not_let_in_is_told_so() -> None:
    assert type(refusal_of(saying(401))) is errors.Unauthorized
    assert type(refusal_of(saying(403))) is errors.Forbidden


def test_a_missing_token_is_told_in_words_for_who_calls() -> None:
    """The dispatcher's own words are for those who write headers by hand."""
    there = '{"code": "unauthorized", "detail": "this token has expired"}'
    assert "HOLDFAST_TOKEN" in str(refusal_of(saying(401, there)))
    assert "this token has expired" in str(refusal_of(saying(401, there), token="hf_x"))


def test_what_is_no_dispatcher_is_not_waited_for() -> None:
    for answer in (saying(404, "nothing here"), saying(405)):
        refused = refusal_of(answer)
        assert isinstance(refused, StoreUnavailable)
        assert refused.lasting
    assert "cannot be read" in str(refusal_of(saying(200, "<html>welcome</html>")))


GARBAGE = [
    b"<html>welcome</html>",
    b"",
    b"{}",
    b'{"now": "\xff"}',
    b'{"now": ' + b"[" * 100_000,
    b'{"now": 1}',
    b"null",
]


@pytest.mark.parametrize("body", GARBAGE, ids=lambda body: repr(body[:20]))
def test_garbage_is_no_answer_and_nobody_knows_whether_it_happened(body: bytes) -> None:
    for status in (200, 502):
        refused = refusal_of(saying_bytes(status, body))
        assert isinstance(refused, StoreUnavailable)
        assert refused.lasting == (status == 200)


def test_a_body_that_somebody_on_the_way_finds_too_large_is_too_large() -> None:
    assert type(refusal_of(saying(413, "<html>413 Request Entity Too Large</html>"))) is errors.PayloadTooLarge


def test_nobody_is_led_elsewhere() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=307, headers={"Location": "/elsewhere"})

    assert isinstance(refusal_of(answer), StoreUnavailable)
    assert asked == ["/v1/now"]


def test_a_call_is_bounded_in_time() -> None:
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    refused = refusal_of(answer, timeout=0.05)
    assert isinstance(refused, StoreUnavailable)
    assert "did not answer within 0.05 s" in str(refused)


def test_a_call_is_bounded_in_size() -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        answer = web.StreamResponse()
        await answer.prepare(request)
        while True:
            await answer.write(b" " * 100_000)
            sent += 100_000

    async def use() -> None:
        async with store_on(endless, answer_bytes=1_000_000) as store:
            with pytest.raises(PayloadTooLarge, match="more than 1,000,000 bytes"):
                await store.now()

    asyncio.run(use())
    assert sent < 50_000_000


def test_a_page_that_does_not_fit_is_asked_for_in_smaller_ones() -> None:
    async def use(url: str) -> None:
        store = RemoteStore(parsed(url, {"answer_bytes": 100_000}))
        small = [NewTask(id=ids.task_id(), name="t", payload=f'"{"x" * 20_000}"') for _ in range(9)]
        large = NewTask(id=ids.task_id(), name="t", payload=f'"{"x" * 100_000}"', queue="large")
        await store.submit([*small, large])
        found = await store.page(TaskFilter(queue="default"))
        assert [task.id for task in found] == [new.id for new in reversed(small)]
        with pytest.raises(PayloadTooLarge):
            await store.page(TaskFilter(queue="large"))
        with pytest.raises(PayloadTooLarge):
            await store.get(large.id)
        assert await store.now()  # the line is as good as before
        await store.close()

    with Serving(store_factory("memory://")) as served:
        asyncio.run(use(served.url))


def test_nobody_there_is_unavailable_and_a_closed_handle_is_closed() -> None:
    async def use() -> None:
        async with serving(saying(200)) as host:
            gone = host
        store = RemoteStore(parsed(f"http://{gone}", {}))
        with pytest.raises(StoreUnavailable) as away:
            await store.now()
        assert not away.value.lasting
        await store.close()
        with pytest.raises(StoreClosed):
            await store.now()

    asyncio.run(use())


def test_a_handle_that_nobody_closes_goes_with_its_loop_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        async with serving(saying(200, '{"now": "2030-01-01T00:00:00Z"}')) as host:
            app = Holdfast(f"http://{host}")
            await app.client.store.now()

    asyncio.run(use())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # asyncio's own, of the socket; off by default
        gc.collect()
    assert not caplog.records


def test_a_handle_can_be_used_and_closed_on_another_loop() -> None:
    async def use(store: RemoteStore) -> None:
        async with serving(saying(200, '{"now": "2030-01-01T00:00:00Z"}')) as host:
            store._options = store._line._options = parsed(f"http://{host}", {})
            await store.now()
            await store.now()

    store = RemoteStore(parsed("http://nowhere", {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(use(store))
        asyncio.run(use(store))
        asyncio.run(store.close())
        gc.collect()


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate(tmp_path))

    async def use() -> None:
        async with serving(saying(200), tls=context) as host:
            store = RemoteStore(parsed(f"https://{host}", {}))
            with pytest.raises(StoreUnavailable) as refused:
                await store.now()
            assert refused.value.lasting
            await store.close()

    asyncio.run(use())


# The token


def test_the_token_is_a_header_and_stands_in_nothing_that_people_read(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[str | None] = []

    async def answer(request: web.Request) -> web.Response:
        shown.append(request.headers.get("Authorization"))
        assert TOKEN not in str(request.url)
        return web.Response(status=500)

    async def use() -> str:
        async with serving(answer) as host:
            app = Holdfast(f"http://{TOKEN}@{host}")
            with pytest.raises(StoreUnavailable) as refused:
                await app.client.store.now()
            label = app.client.store.label
            await app.aclose()
            return f"{app!r} {label} {refused.value!r} {parsed(app.url, {})!r} {refused.getrepr(style='long')}"

    with caplog.at_level(logging.DEBUG):
        said = asyncio.run(use())
    assert shown == [f"Bearer {TOKEN}"]
    assert TOKEN not in said.replace(f"http://{TOKEN}@", "")
    assert TOKEN not in caplog.text


def test_the_token_comes_from_the_url_then_the_option_then_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_TOKEN", "environment")
    assert parsed("http://url@host", {"token": "option"}).token == "url"
    assert parsed("http://host", {"token": "option"}).token == "option"
    assert parsed("http://host", {}).token == "environment"
    monkeypatch.delenv("HOLDFAST_TOKEN")
    assert parsed("http://host", {}).token is None


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://user:password@host",
        "http://host?token=x",
        "http://host/#x",
        "http://host:99999",
        "http://line%0Abreak@host",
    ],
)
def test_a_url_that_is_none_is_refused_without_repeating_secrets(url: str) -> None:
    with pytest.raises(InvalidTask) as refused:
        store_factory(url)
    assert "password@" not in str(refused.value)
    assert "token=x" not in str(refused.value)


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(InvalidTask, match="takes no option 'schema'"):
        store_factory("https://host", schema="x")


def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("holdfast.stores.remote.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    with pytest.raises(NotSupported, match=r'pip install "holdfast\[http\]"'):
        store_factory("http://host")


# Wake-ups


class Marks:
    """A dispatcher that says of wake-ups what it is told to."""

    def __init__(self) -> None:
        self.mark = 1
        self.asked: list[str | None] = []
        self.changed = asyncio.Event()
        self.away = False

    async def answer(self, request: web.Request) -> web.Response:
        seen = request.query.get("seen")
        self.asked.append(seen)
        if self.away:
            return web.Response(status=503)
        while seen == str(self.mark) and not self.away:
            self.changed.clear()
            await self.changed.wait()
        if self.away:
            return web.Response(status=503)
        return web.json_response({"woken": True, "seen": str(self.mark)})

    def move(self) -> None:
        self.mark += 1
        self.changed.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  a list that another task fills
            await asyncio.sleep(0.001)


def test_who_is_idle_is_woken_once_at_first_and_whenever_something_happens() -> None:
    async def use() -> None:
        marks = Marks()
        async with store_on(marks.answer) as store:
            with Bell(store.wakeups) as bell:
                assert marks.asked == [], "nobody is idle"
                assert await bell.wait(10)
                assert not await bell.wait(0.01), "nothing more has happened"
                waiting = asyncio.create_task(bell.wait(10))
                await until(lambda: marks.asked == [None, "1"])
                marks.move()
                assert await waiting

    asyncio.run(use())


def test_what_happens_between_two_questions_is_not_missed() -> None:
    async def use() -> None:
        marks = Marks()
        async with store_on(marks.answer) as store:
            with Bell(store.wakeups) as bell:
                assert await bell.wait(10)
                assert not await bell.wait(0.01)
                marks.move()  # while nobody is idle
                assert await bell.wait(10)

    asyncio.run(use())


def test_a_dispatcher_that_was_away_wakes_everybody_when_it_is_back(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LAST_PAUSE_SECONDS", 0.05)

    async def use() -> None:
        marks = Marks()
        async with store_on(marks.answer) as store:
            with Bell(store.wakeups) as bell:
                assert await bell.wait(10)
                waiting = asyncio.create_task(bell.wait(10))
                await until(lambda: marks.asked[-1] == "1")
                marks.away = True
                marks.changed.set()
                await until(lambda: marks.asked[-3:] == [None, None, None])
                marks.away = False
                assert await waiting

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    assert [record.message.split()[0] for record in caplog.records] == ["wakeups.lost", "wakeups.back"]


def test_a_flood_of_wake_ups_is_met_with_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "FLOOD", 3)
    monkeypatch.setattr(listener, "FLOOD_SECONDS", 3600.0)
    monkeypatch.setattr(listener, "FLOOD_REST_SECONDS", 3600.0)

    async def use() -> None:
        asked: list[str | None] = []

        async def ask(seen: str | None, _wait: float) -> str:
            asked.append(seen)
            await asyncio.sleep(0)
            return str(len(asked))

        listening = listener.Listener(ask, label="http://here")
        listening.listen(lambda: None)
        listening.idle()
        await until(lambda: len(asked) == 4)
        for _ in range(100):
            await asyncio.sleep(0)
        assert asked == [None, "1", "2", "3"]
        await listening.close()

    asyncio.run(use())
