"""Workers through a real dispatcher: what is refused of one task costs neither the worker nor any other task."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from holdfast import Holdfast, current_task
from holdfast.dispatcher.admission import EVENTS_MOST
from holdfast.dispatcher.bodies import Intake
from holdfast.errors import Forbidden, HoldfastError, PayloadTooLarge, Unauthorized
from holdfast.model.token import Scope
from tests.dispatcher.support import Running, dispatcher
from tests.runtime.support import Crew, ended


@pytest.fixture
def people(memory: Running) -> Iterator[Holdfast]:
    """Those who may do everything. From here on the dispatcher asks for tokens."""
    memory.token = memory.make_token(*Scope)
    with Holdfast(memory.url, token=memory.token) as app:
        yield app


@pytest.fixture
def app(memory: Running, people: Holdfast) -> Iterator[Holdfast]:
    """A worker's, whose token lets it work and no more."""
    with Holdfast(memory.url, token=memory.make_token(Scope.WORK)) as made:
        yield made


LARGE = "x" * 1_000_000


@pytest.mark.parametrize(("wanted", "scope"), [(Unauthorized, None), (Forbidden, Scope.READ)])
@pytest.mark.parametrize("parser", ["httptools", "h11"])
def test_who_is_refused_with_a_large_body_hears_why(
    parser: str, wanted: type[HoldfastError], scope: Scope | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that the connection broke: that would be tried again for ever."""
    use_parser(parser, monkeypatch)
    with dispatcher(always_tokens=True) as running:
        token = "hf_0123456789abcdef_" + "A" * 43 if scope is None else running.make_token(scope)
        hears(running, token, wanted)


@pytest.mark.parametrize("parser", ["httptools", "h11"])
def test_a_body_that_is_too_large_is_told_so(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_parser(parser, monkeypatch)
    with dispatcher(intake=Intake(each=1_000_000), always_tokens=True) as running:
        hears(running, running.make_token(Scope.ENQUEUE), PayloadTooLarge)


def use_parser(parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parser == "h11":
        monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)


def hears(running: Running, token: str, wanted: type[HoldfastError]) -> None:
    with Holdfast(running.url, token=token) as app:
        for _ in range(10):
            with pytest.raises(wanted):
                app.enqueue_many([app.s("t", LARGE) for _ in range(8)])


def test_a_follow_up_that_the_token_does_not_allow_fails_its_task_alone(app: Holdfast, people: Holdfast) -> None:
    @app.task(name="greedy")
    def greedy() -> None:
        current_task().follow_up(modest.s())

    @app.task(name="modest")
    def modest() -> str:
        return "done"

    with Crew(app) as crew:
        failed = ended(people.using(max_attempts=1).enqueue("greedy"))
        completed = ended(people.enqueue("modest"))
        assert crew.thread.is_alive()
    assert (failed.status, failed.last_error and failed.last_error["code"]) == ("failed", "forbidden")
    assert (completed.status, completed.result) == ("completed", "done")


def test_more_events_than_a_dispatcher_takes_fail_the_task_once(people: Holdfast) -> None:
    @people.task(name="chatty", max_attempts=1)
    def chatty() -> None:
        for number in range(EVENTS_MOST + 1):
            current_task().emit("said", {"number": number})

    with Crew(people):
        failed = ended(chatty.enqueue())
    assert (failed.status, failed.last_error and failed.last_error["code"]) == ("failed", "payload_too_large")
    assert [event.kind for event in people.tasks.events(failed.id)].count("said") == 0
