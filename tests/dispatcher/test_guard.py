"""Who may call: every route of the table is walked (C14.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.dispatcher import guard
from holdfast.dispatcher.routes import TABLE, Route
from holdfast.model.token import Scope
from holdfast.stores.open import store_factory
from holdfast.testing.virtual_clock import VirtualClock
from tests.dispatcher.support import Running, dispatcher

GUARDED = [route for route in TABLE if route.scopes]
OPEN = {"/livez", "/readyz"}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def call(running: Running, route: Route, token: str | None) -> tuple[int, str]:
    body: dict[str, object] | None = None if route.body is None else {}
    answer = running.call(route.method, route.path.replace("{task_id}", "x"), body, token=token)
    return answer.status, answer.code if answer.status >= 400 else ""


@pytest.fixture(scope="module")
def closed() -> Iterator[Running]:
    with dispatcher(always_tokens=True) as running:
        yield running


@pytest.fixture(scope="module")
def by_scope(closed: Running) -> dict[Scope, str]:
    return {scope: closed.make_token(scope) for scope in Scope}


def test_only_the_probes_are_open() -> None:
    assert {route.path for route in TABLE if not route.scopes} == OPEN


@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_a_route_answers_401_without_a_token(closed: Running, route: Route) -> None:
    assert call(closed, route, None) == (401, "unauthorized")
    assert call(closed, route, "hf_0123456789abcdef_" + "A" * 43) == (401, "unauthorized")
    assert call(closed, route, "nonsense") == (401, "unauthorized")


@pytest.mark.parametrize("route", GUARDED, ids=named)
def test_a_route_answers_403_with_too_little_and_goes_on_with_enough(
    closed: Running, by_scope: dict[Scope, str], route: Route
) -> None:
    for scope, token in by_scope.items():
        status, code = call(closed, route, token)
        if scope in route.scopes:
            assert status not in (401, 403), scope
        else:
            assert (status, code) == (403, "forbidden"), scope


def test_a_schedule_submits_so_work_alone_does_not_declare_one(closed: Running, by_scope: dict[Scope, str]) -> None:
    body = {"name": "s", "timing": {"every": 60}, "task": {"name": "anything", "payload": None}}
    refused = closed.post("/v1/schedules", body, token=by_scope[Scope.WORK])
    assert (refused.status, refused.code) == (403, "forbidden")
    assert closed.get("/v1/schedules", token=by_scope[Scope.READ]).json == {"schedules": []}
    for token in (closed.make_token(Scope.WORK, Scope.ENQUEUE), by_scope[Scope.ADMIN]):
        assert closed.post("/v1/schedules", body, token=token).status == 200


def test_probes_need_no_token(closed: Running) -> None:
    for path in sorted(OPEN):
        assert closed.get(path).status == 200


def test_other_paths_and_methods_are_ours_too(closed: Running) -> None:
    assert (closed.get("/v2/tasks").status, closed.get("/").code) == (404, "no_such_path")
    wrong = closed.call("PUT", "/v1/tasks")
    assert (wrong.status, wrong.code, wrong.headers["allow"]) == (405, "method_not_allowed", "GET, POST")


def test_a_401_says_how_to_authenticate(closed: Running) -> None:
    assert closed.get("/v1/now").headers["www-authenticate"] == "Bearer"


def test_a_revoked_token_works_no_longer_than_it_is_kept(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    token = closed.make_token(Scope.READ)
    assert closed.get("/v1/now", token=token).status == 200
    closed.behind(lambda store: store.revoke_token(token.split("_")[1]))
    monkeypatch.setattr(guard, "FRESH_SECONDS", 0.0)
    assert closed.get("/v1/now", token=token).status == 401


def test_an_expired_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "FRESH_SECONDS", 0.0)
    clock = VirtualClock()
    with dispatcher(factory=store_factory("memory://", clock=clock), always_tokens=True) as running:
        token = running.make_token(Scope.READ, lifetime_seconds=60)
        assert running.get("/v1/now", token=token).status == 200
        clock.advance(60)
        assert running.get("/v1/now", token=token).status == 401


def test_half_a_token_is_none(closed: Running, by_scope: dict[Scope, str]) -> None:
    good = by_scope[Scope.READ]
    _, token_id, secret = good.split("_", 2)
    other = by_scope[Scope.ADMIN].split("_", 2)[2]
    for shown in (good[:-1], f"{good}A", f"hf_{token_id}_{other}", f"hf_{token_id}_{secret[::-1]}", good.upper(), ""):
        answer = closed.get("/v1/now", headers={"authorization": f"Bearer {shown}"})
        assert answer.status == 401, shown
        assert secret not in answer.text.decode()
    assert closed.get("/v1/now", headers={"authorization": f"Basic {good}"}).status == 401
    assert closed.get("/v1/now", headers={"authorization": f"bearer {good}"}).status == 200


def test_a_token_is_never_read_from_the_address(closed: Running, by_scope: dict[Scope, str]) -> None:
    assert closed.get(f"/v1/now?access_token={by_scope[Scope.READ]}").status == 401


# Without tokens


def test_without_tokens_this_machine_may_call(memory: Running) -> None:
    assert memory.get("/v1/now").status == 200
    for host in ("localhost:80", "127.0.0.1", "[::1]:8080"):
        assert memory.get("/v1/now", headers={"host": host}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1"])
def test_without_tokens_a_name_that_leads_here_may_not(memory: Running, host: str) -> None:
    answer = memory.get("/v1/now", headers={"host": host})
    assert (answer.status, answer.code) == (403, "forbidden")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
def test_without_tokens_a_page_from_elsewhere_may_not(memory: Running, origin: str) -> None:
    answer = memory.post("/v1/tasks", {"tasks": []}, headers={"origin": origin})
    assert (answer.status, answer.code) == (403, "forbidden")
    assert "access-control-allow-origin" not in answer.headers


def test_the_first_token_closes_the_door_for_good(memory: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "FRESH_SECONDS", 0.0)
    assert memory.get("/v1/now").status == 200
    token = memory.make_token(Scope.READ)
    assert memory.get("/v1/now").status == 401
    assert memory.get("/v1/now", token=token).status == 200
    memory.behind(lambda store: store.revoke_token(token.split("_")[1]))
    assert memory.get("/v1/now").status == 401
    assert memory.get("/v1/now", token=token).status == 401


# Names of workers prove nothing


def test_nobody_ends_the_leases_of_another_worker_by_its_name(running: Running) -> None:
    running.token = running.make_token(*Scope)
    stranger = running.make_token(Scope.WORK)
    running.post("/v1/workers", {"id": "w-1"})
    running.post("/v1/tasks", {"tasks": [{"name": "send", "payload": 1}]})
    (claim,) = running.post("/v1/claims", {"worker_id": "w-1"}).json["claims"]
    lease = {name: claim[name] for name in ("task_id", "attempt", "lease_token")}
    guessed = {**lease, "lease_token": "0" * len(claim["lease_token"])}
    tried: list[dict[str, Any]] = [{}, {"leases": []}, {"leases": [guessed]}]
    for shown in tried:
        assert running.post("/v1/workers/leave", {"worker_id": "w-1", **shown}, token=stranger).status == 200
    assert running.post("/v1/workers", {"id": "w-1"}, token=stranger).status == 200
    assert running.post("/v1/workers/leave", {"worker_id": "w-1"}, token=stranger).status == 200
    assert running.post("/v1/claims", {"worker_id": "w-1"}, token=stranger).json["claims"] == []
    assert running.post("/internal/heartbeat", guessed, token=stranger).code == "lease_lost"
    done = {**guessed, "status": "completed"}
    assert running.post("/internal/task-complete", done, token=stranger).code == "lease_lost"
    assert running.post("/internal/heartbeat", lease).status == 200
    running.post("/v1/workers/leave", {"worker_id": "w-1", "leases": [lease]})
    assert running.post("/internal/heartbeat", lease).code == "lease_lost"
