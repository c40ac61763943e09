"""What people and other languages call under /v1, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import errors, ids
from holdfast.dispatcher import problems
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.model.token import Scope
from tests.dispatcher.support import Running

UNKNOWN = "0190a6e8-0000-7000-8000-000000000001"


def submit(running: Running, *tasks: dict[str, Any]) -> list[str]:
    answer = running.post("/v1/tasks", {"tasks": [{"name": "send", "payload": 1, **task} for task in tasks]})
    assert answer.status == 200, answer
    return [one["id"] for one in answer.json["tasks"]]


def claim(running: Running, **options: Any) -> list[dict[str, Any]]:
    answer = running.post("/v1/claims", {"worker_id": "w", "limit": 10, **options})
    assert answer.status == 200, answer
    claims: list[dict[str, Any]] = answer.json["claims"]
    return claims


def lease(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in ("task_id", "attempt", "lease_token")}


def settle(running: Running, *settlements: dict[str, Any]) -> list[dict[str, Any]]:
    answer = running.post("/v1/settlements", {"settlements": list(settlements)})
    assert answer.status == 200, answer
    items: list[dict[str, Any]] = answer.json["settlements"]
    return items


def test_a_submit_takes_every_option_and_shows_it_in_the_record(running: Running) -> None:
    options = {
        "id": ids.task_id(),
        "queue": "mail",
        "priority": 3,
        "run_at": "2030-01-01T00:00:00Z",
        "max_attempts": 7,
        "backoff": {"type": "delays", "delays": [1.0, 5.0], "jitter": 0.0},
        "timeout": 30.0,
        "lease": 15.0,
        "idempotency_key": "welcome:7",
        "concurrency_key": "tenant",
        "run_id": "r",
        "meta": {"trace": "x"},
    }
    (task_id,) = submit(running, options)
    task = running.get(f"/v1/tasks/{task_id}").json
    assert {name: task[name] for name in options} == options
    assert running.get("/v1/tasks/by-key?key=welcome%3A7").json == task


@pytest.mark.parametrize("meta", [{}, {"trace": "x"}])
def test_meta_has_one_form_in_records_claims_and_schedules(running: Running, meta: dict[str, Any]) -> None:
    (task_id,) = submit(running, {"meta": meta})
    (granted,) = claim(running)
    timing = {"name": "s", "timing": {"every": 60}, "task": {"name": "send", "payload": 1, "meta": meta}}
    declared = running.post("/v1/schedules", timing).json
    assert running.get(f"/v1/tasks/{task_id}").json["meta"] == granted["meta"] == declared["task"]["meta"] == meta


def test_a_submit_again_is_the_same(running: Running) -> None:
    task = {"name": "send", "payload": 1, "id": ids.task_id(), "idempotency_key": "once"}
    first = running.post("/v1/tasks", {"tasks": [task]}).json
    assert running.post("/v1/tasks", {"tasks": [task]}).json == first
    other = running.post("/v1/tasks", {"tasks": [{**task, "id": ids.task_id()}]}).json
    assert other == {"tasks": [{"id": task["id"], "created": False}]}
    conflict = running.post("/v1/tasks", {"tasks": [{**task, "id": ids.task_id(), "name": "other"}]})
    assert (conflict.status, conflict.code) == (409, "idempotency_conflict")


def test_pages_of_tasks_say_where_the_next_begins(running: Running) -> None:
    task_ids = submit(running, *[{} for _ in range(5)])
    first = running.get("/v1/tasks?limit=3").json
    second = running.get(f"/v1/tasks?limit=3&after={first['after']}").json
    assert [task["id"] for task in (*first["tasks"], *second["tasks"])] == task_ids[::-1]
    assert second["after"] is None


def test_what_is_not_there_is_404(running: Running) -> None:
    for path in (f"/v1/tasks/{UNKNOWN}", "/v1/tasks/nonsense", "/v1/tasks/by-key?key=x", f"/v1/tasks/{UNKNOWN}/events"):
        assert (running.get(path).status, running.get(path).code) == (404, "task_not_found")
    assert running.get("/v1/runs/one?run_id=x").code == "run_not_found"
    assert running.get("/v1/datasets/version?dataset=x").code == "dataset_not_found"
    assert running.post("/v1/schedules/pause", {"name": "x"}).code == "schedule_not_found"
    assert running.post(f"/v1/tasks/{UNKNOWN}/cancel").code == "task_not_found"


def test_acts_of_an_operator(running: Running) -> None:
    first, second = submit(running, {}, {"delay_seconds": 60})
    assert running.post(f"/v1/tasks/{first}/cancel").json == {"task_id": first, "status": "canceled", "changed": True}
    assert running.post(f"/v1/tasks/{first}/requeue").json["status"] == "queued"
    (claimed,) = claim(running)
    assert running.post(f"/v1/tasks/{first}/release").json["status"] == "queued"
    assert settle(running, {**lease(claimed), "status": "completed"})[0]["error"]["code"] == "lease_lost"
    refused = running.call("DELETE", f"/v1/tasks/{first}")
    assert (refused.status, refused.code) == (422, "invalid_task")
    many = running.post("/v1/tasks/amend", {"change": "cancel", "ids": [first, UNKNOWN, second]}).json["tasks"]
    assert [one.get("status") for one in many] == ["canceled", None, "canceled"]
    assert many[1]["error"]["code"] == "task_not_found"
    assert running.call("DELETE", f"/v1/tasks/{first}").json["status"] is None
    assert running.get(f"/v1/tasks/{first}").status == 404


def test_an_act_is_told_with_the_name_of_its_token(running: Running) -> None:
    (task_id,) = submit(running, {})
    token = running.make_token(Scope.ADMIN, Scope.READ)
    running.post(f"/v1/tasks/{task_id}/cancel", token=token)
    running.post("/v1/tasks/amend", {"change": "requeue", "ids": [task_id], "actor": "me"}, token=token)
    events = running.get(f"/v1/tasks/{task_id}/events", token=token).json["events"]
    assert [event["actor"] for event in events[1:]] == ["admin+read", "me"]


def test_leases_are_kept_and_ends_are_seen(running: Running) -> None:
    task_ids = submit(running, {}, {})
    claims = claim(running)
    running.post(f"/v1/tasks/{task_ids[0]}/cancel")
    stale = {**lease(claims[1]), "lease_token": ids.token()}
    asked, kept, lost = running.post("/v1/leases/extend", {"leases": [lease(claims[0]), lease(claims[1]), stale]}).json[
        "leases"
    ]
    assert asked["cancel_requested"] is True
    assert "cancel_requested" not in kept
    assert kept["lease_expires_at"] >= claims[1]["lease_expires_at"]
    assert lost["error"]["code"] == "lease_lost"
    settle(running, {**lease(claims[0]), "status": "canceled"}, {**lease(claims[1]), "status": "completed"})
    ended = running.post("/v1/tasks/ended", {"ids": [*task_ids, UNKNOWN]}).json["tasks"]
    assert {task_id: task and task["status"] for task_id, task in ended.items()} == {
        task_ids[0]: "canceled",
        task_ids[1]: "completed",
        UNKNOWN: None,
    }


def test_queues_are_paused_and_limited(running: Running) -> None:
    submit(running, {"queue": "mail"}, {"queue": "mail"})
    running.post("/v1/queues/pause", {"queue": "mail"})
    assert claim(running) == []
    running.post("/v1/queues/pause", {"queue": "mail", "paused": False})
    limits = running.post("/v1/queues/limit", {"queue": "mail", "max_running": 1, "rate": "500/15m"}).json
    assert limits == {
        "max_running": 1,
        "rate": {"count": 500, "period": 900.0},
        "burst": 1,
        "max_running_per_key": None,
    }
    assert len(claim(running)) == 1
    assert running.post("/v1/queues/limit", {"queue": "mail", "rate": None}).json["rate"] is None
    (shown,) = running.get("/v1/queues").json["queues"]
    assert (shown["counts"], shown["limits"]["max_running"]) == ({"queued": 1, "running": 1}, 1)
    assert running.post("/v1/queues/pause", {"queue": "*"}).code == "invalid_task"


def test_a_workflow_runs_and_a_child_sees_its_parents(running: Running) -> None:
    parent, child = ids.task_ids(2)
    submit(running, {"id": parent, "run_id": "r"}, {"id": child, "run_id": "r", "parents": [parent]})
    assert running.get("/v1/runs/lives?run_id=r").json == {"lives": True}
    (claimed,) = claim(running)
    settle(running, {**lease(claimed), "status": "completed", "result": {"n": 1}})
    (said,) = running.get(f"/v1/tasks/{child}/parents").json["parents"]
    assert said == {"task_id": parent, "name": "send", "status": "completed", "result": {"n": 1}, "error": None}
    assert running.post("/v1/runs/cancel", {"run_id": "r"}).json == {"count": 1}
    shown = running.get("/v1/runs/one?run_id=r").json
    assert (shown["status"], shown["counts"]) == ("canceled", {"completed": 1, "canceled": 1})
    assert [run["id"] for run in running.get("/v1/runs").json["runs"]] == ["r"]


def test_steps_are_recorded_once(running: Running) -> None:
    submit(running, {})
    (claimed,) = claim(running)
    first = running.post("/v1/steps", {**lease(claimed), "name": "charge", "result": [1]}).json
    again = running.post("/v1/steps", {**lease(claimed), "name": "charge", "result": [2]}).json
    assert first["result"] == again["result"] == [1]
    assert running.get(f"/v1/tasks/{claimed['task_id']}/steps").json == {"steps": [first]}


def test_schedules_are_declared_fired_paused_and_deleted(running: Running) -> None:
    call = {"name": "nightly", "timing": {"cron": "0 3 * * *", "timezone": "Europe/Zurich"}}
    made = running.post("/v1/schedules", {**call, "task": {"name": "clean", "payload": {"args": [], "kwargs": {}}}})
    assert made.status == 200, made
    assert made.json["task"]["payload"] == {"args": [], "kwargs": {}}
    assert running.get("/v1/schedules").json["schedules"] == [made.json]
    last = made.json["last_fired_at"]
    fire = {"name": "nightly", "last_fired_at": last, "upto": "2030-01-01T03:00:00Z", "tasks": []}
    assert running.post("/v1/schedules/fire", fire).json == {"fired": True}
    assert running.post("/v1/schedules/fire", fire).json == {"fired": False}
    assert running.post("/v1/schedules/pause", {"name": "nightly"}).status == 200
    assert running.get("/v1/schedules").json["schedules"][0]["paused"] is True
    assert running.post("/v1/schedules/delete", {"name": "nightly"}).status == 200
    assert running.get("/v1/schedules").json == {"schedules": []}


@pytest.mark.parametrize(
    "timing",
    [{}, {"cron": "x"}, {"every": 0.5}, {"cron": "@daily", "every": 5}, {"cron": "@daily", "timezone": "../x"}],
)
def test_a_schedule_that_never_fires_is_refused(memory: Running, timing: dict[str, Any]) -> None:
    answer = memory.post("/v1/schedules", {"name": "n", "timing": timing, "task": {"name": "x", "payload": 1}})
    assert (answer.status, answer.code) == (422, "invalid_task")


def test_datasets_are_written_pinned_and_read(running: Running) -> None:
    submit(running, {})
    (claimed,) = claim(running)
    rows = [{"key": "a", "value": {"n": 1}}, {"key": "b", "value": None}]
    settle(running, {**lease(claimed), "status": "completed", "outputs": [{"dataset": "orders", "rows": rows}]})
    (listed,) = running.get("/v1/datasets").json["datasets"]
    version = running.get("/v1/datasets/version?dataset=orders").json
    assert listed["latest"] == version
    assert running.get("/v1/datasets/versions?dataset=orders").json == {"versions": [version]}
    assert (version["version"], version["rows"], version["task_id"]) == (1, 2, claimed["task_id"])
    assert version["mode"] == "append", "as from Python, where nothing is said"
    assert running.get("/v1/datasets/rows?dataset=orders&version=1").json == {"rows": rows}
    assert running.get("/v1/datasets/rows?dataset=orders&version=1&after=a").json == {"rows": rows[1:]}
    (reader,) = submit(running, {"inputs": {"orders": 1}})
    assert running.get(f"/v1/tasks/{reader}/inputs").json == {"inputs": {"orders": 1}}


def test_workers_are_remote_and_may_leave(running: Running) -> None:
    worker = {
        "id": "w",
        "host": "there",
        "pid": 7,
        "queues": ["mail"],
        "concurrency": 3,
        "version": "1",
        "names": ["a"],
    }
    assert running.post("/v1/workers", worker).status == 200
    (shown,) = running.get("/v1/workers").json["workers"]
    assert {name: shown[name] for name in worker} == worker
    assert shown["remote"] is True
    assert running.post("/v1/workers/leave", {"worker_id": "w"}).status == 200
    assert running.get("/v1/workers").json == {"workers": []}


def test_sinks_are_declared_without_showing_their_secret(running: Running) -> None:
    sink = {"name": "hook", "url": "https://example.org/hook", "effect": "route_event", "secret": "s3cret"}
    assert running.post("/v1/sinks", sink).status == 200
    shown = running.get("/v1/sinks")
    assert b"s3cret" not in shown.text
    assert shown.json["sinks"][0]["signed"] is True
    submit(running, {})
    (row,) = running.get("/v1/outbox?sink=hook").json["rows"]
    assert row["event"]["kind"] == "task.enqueued"
    assert running.post("/v1/outbox/purge", {"ids": [row["id"]]}).json == {"count": 0}
    assert running.post("/v1/sinks/delete", {"name": "hook"}).json == {"deleted": True}
    assert running.post("/v1/sinks/delete", {"name": "hook"}).json == {"deleted": False}


@pytest.mark.parametrize(
    "sink",
    [
        {"url": "file:///etc/passwd", "effect": "route_event"},
        {"url": "http://169.254.169.254/x", "effect": "route_event"},
        {"url": "https://example.org", "effect": "enqueue_task"},
        {"url": "sqs://q", "effect": "route_event"},
        {"url": "subscriber:x", "effect": "route_event"},
        {"url": "nats://[", "effect": "enqueue_task"},
        {"url": "sqs+http://[::1/1/q", "effect": "enqueue_task"},
        {"url": "nats://user:s3cret@host/x", "effect": "enqueue_task"},
    ],
)
def test_a_sink_that_leads_nowhere_good_is_refused(memory: Running, sink: dict[str, str]) -> None:
    answer = memory.post("/v1/sinks", {"name": "x", **sink})
    assert (answer.status, answer.code) == (422, "invalid_task")


def test_the_store_says_what_it_is(running: Running) -> None:
    said = running.get("/v1/store").json
    assert said["capabilities"]["tokens"] is True
    assert said["label"] == running.behind(_label)
    assert running.get("/v1/now").json["now"].endswith("Z")
    assert all(set(one) == {"question", "well", "words"} for one in running.get("/v1/check").json["checks"])


async def _label(store: Any) -> str:
    return str(store.label)


def test_metrics_are_in_the_text_format(running: Running) -> None:
    submit(running, {"queue": 'a"b\\c', "run_at": "2020-01-01T00:00:00Z"})
    running.post("/v1/workers", {"id": "w", "concurrency": 3})
    answer = running.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.decode().splitlines()
    assert r'holdfast_tasks{queue="a\"b\\c",status="queued"} 1' in lines
    (oldest,) = (line for line in lines if line.startswith(r'holdfast_queue_oldest_due_seconds{queue="a\"b\\c"} '))
    assert float(oldest.split()[-1]) > 86400
    assert 'holdfast_requests_total{route="submit",status="200"} 1' in lines
    assert "holdfast_slots 3" in lines
    assert len({line.split()[2] for line in lines if line.startswith("# TYPE")}) == 10


def test_a_store_that_is_away_is_503_and_says_when_to_come_back(memory: Running) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("postgres did not answer")

    memory.hall.store.queues = away  # type: ignore[method-assign]
    answer = memory.get("/v1/queues")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "store_unavailable", "1")


def test_what_nobody_foresaw_tells_nothing(memory: Running) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret words")

    memory.hall.store.queues = broken  # type: ignore[method-assign]
    answer = memory.get("/v1/queues")
    assert (answer.status, answer.code) == (500, "unexpected")
    assert b"secret" not in answer.text
    assert b"Zero" not in answer.text


STATUSES = {
    404: {"TaskNotFound", "RunNotFound", "ScheduleNotFound", "DatasetNotFound"},
    413: {"PayloadTooLarge"},
    422: {"InvalidTask", "InvalidWorkerID", "CycleError"},
    401: {"Unauthorized"},
    403: {"Forbidden"},
    503: {"StoreUnavailable", "StoreClosed", "SchemaMismatch"},
}


def test_every_error_has_the_status_of_the_contract() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HoldfastError)]
    assert len(kinds) > 20
    for kind in kinds:
        wanted = next((status for status, names in STATUSES.items() if kind.__name__ in names), 409)
        assert problems.status_of(kind("x")) == wanted, kind
