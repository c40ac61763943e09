"""The three calls of the source document, as it writes them (C14.1)."""

from __future__ import annotations

from typing import Any

from holdfast import ids
from holdfast.model.token import Scope
from tests.dispatcher.support import Running

WORKER = "w-1"


def submitted(running: Running, **options: Any) -> str:
    answer = running.post("/v1/tasks", {"tasks": [{"name": "send", "payload": {"to": 7}, **options}]})
    assert answer.status == 200, answer
    return str(answer.json["tasks"][0]["id"])


def claimed(running: Running, task_id: str) -> dict[str, Any]:
    answer = running.post("/internal/task-claim", {"task_id": task_id, "worker_id": WORKER})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json
    return found


def lease(claim: dict[str, Any]) -> dict[str, Any]:
    return {name: claim[name] for name in ("task_id", "attempt", "lease_token")}


def test_a_task_is_claimed_kept_and_completed(running: Running) -> None:
    task_id = submitted(running)
    claim = claimed(running, task_id)
    assert claim["task_id"] == task_id
    assert (claim["attempt"], claim["name"], claim["payload"]) == (1, "send", {"to": 7})
    beat = running.post("/internal/heartbeat", lease(claim)).json
    assert beat["cancel_requested"] is False
    assert beat["lease_expires_at"] >= claim["lease_expires_at"]
    done = running.post("/internal/task-complete", {**lease(claim), "status": "completed", "result": {"ok": 1}})
    assert done.json == {"task_id": task_id, "attempt": 1, "status": "completed"}
    assert running.get(f"/v1/tasks/{task_id}").json["result"] == {"ok": 1}


def test_a_second_claim_is_refused_unless_it_is_the_same_again(running: Running) -> None:
    task_id = submitted(running)
    call = {"task_id": task_id, "worker_id": WORKER, "claim_id": ids.token()}
    first = running.post("/internal/task-claim", call)
    again = running.post("/internal/task-claim", call)
    other = running.post("/internal/task-claim", {**call, "claim_id": ids.token()})
    assert again.json == first.json
    assert (other.status, other.code) == (409, "task_already_claimed")


def test_a_claim_id_that_is_used_again_never_gives_another_task(running: Running) -> None:
    first, second, third = submitted(running), submitted(running), submitted(running)
    claim_id = ids.token()
    many = running.post("/v1/claims", {"worker_id": WORKER, "claim_id": claim_id, "limit": 2}).json["claims"]
    assert {one["task_id"] for one in many} == {first, second}
    call = {"worker_id": WORKER, "claim_id": claim_id}
    assert running.post("/internal/task-claim", {**call, "task_id": second}).json["task_id"] == second
    assert running.post("/internal/task-claim", {**call, "task_id": third}).code == "invalid_task"
    guessable = {**call, "claim_id": "1", "task_id": third}
    assert running.post("/internal/task-claim", guessable).code == "invalid_task"


def test_a_stale_completion_changes_nothing(running: Running) -> None:
    claim = claimed(running, submitted(running))
    stale = {**lease(claim), "lease_token": ids.token()}
    outputs = [{"dataset": "orders", "mode": "replace", "rows": [{"key": "a", "value": 1}]}]
    answer = running.post("/internal/task-complete", {**stale, "status": "completed", "outputs": outputs})
    assert (answer.status, answer.code) == (409, "lease_lost")
    assert running.post("/internal/heartbeat", stale).code == "lease_lost"
    assert running.get(f"/v1/tasks/{claim['task_id']}").json["status"] == "running"
    assert running.get("/v1/datasets").json["datasets"] == []


def test_the_dispatcher_reaches_the_verdict_on_a_failure(running: Running) -> None:
    claim = claimed(running, submitted(running, backoff={"type": "fixed", "delay": 3600}))
    error = {"message": "no route", "code": "ConnectTimeout", "stack": "at send"}
    answer = running.post("/internal/task-complete", {**lease(claim), "status": "failed", "error": error})
    assert answer.json["status"] == "queued"
    task = running.get(f"/v1/tasks/{claim['task_id']}").json
    assert (task["failures"], task["last_error"]["backoff_ms"]) == (1, 3_600_000)
    assert task["last_error"]["code"] == "ConnectTimeout"


def test_an_unrecoverable_failure_is_a_dead_letter(running: Running) -> None:
    claim = claimed(running, submitted(running))
    error = {"message": "no such account", "unrecoverable": True}
    answer = running.post("/internal/task-complete", {**lease(claim), "status": "failed", "error": error})
    assert answer.json["status"] == "failed"


def test_snoozed_and_released_tasks_are_queued_and_have_not_failed(running: Running) -> None:
    for status, further in (("snoozed", {"delay_ms": 60_000}), ("released", {})):
        claim = claimed(running, submitted(running))
        answer = running.post("/internal/task-complete", {**lease(claim), "status": status, **further})
        assert answer.json["status"] == "queued"
        assert running.get(f"/v1/tasks/{claim['task_id']}").json["failures"] == 0


def test_a_completion_brings_outputs_events_and_follow_ups(running: Running) -> None:
    claim = claimed(running, submitted(running))
    answer = running.post(
        "/internal/task-complete",
        {
            **lease(claim),
            "status": "completed",
            "outputs": [{"dataset": "orders", "mode": "append", "rows": [{"key": "a", "value": {"total": 3}}]}],
            "events": [{"kind": "invoice.sent", "payload": {"no": 7}}],
            "follow_ups": [{"name": "next", "payload": [1]}],
        },
    )
    assert answer.status == 200, answer
    rows = running.get("/v1/datasets/rows?dataset=orders&version=1").json["rows"]
    assert rows == [{"key": "a", "value": {"total": 3}}]
    kinds = [event["kind"] for event in running.get(f"/v1/tasks/{claim['task_id']}/events").json["events"]]
    assert kinds == ["task.enqueued", "task.running", "invoice.sent", "task.completed"]
    assert [task["name"] for task in running.get("/v1/tasks?name=next").json["tasks"]] == ["next"]


def test_follow_ups_need_the_scope_enqueue(running: Running) -> None:
    task_id = submitted(running)
    worker = running.make_token(Scope.WORK)
    both = running.make_token(Scope.WORK, Scope.ENQUEUE)
    claim = running.post("/internal/task-claim", {"task_id": task_id, "worker_id": WORKER}, token=worker).json
    body = {**lease(claim), "status": "completed", "follow_ups": [{"name": "next", "payload": None}]}
    for path, said in (("/internal/task-complete", body), ("/v1/settlements", {"settlements": [body]})):
        refused = running.post(path, said, token=worker)
        assert (refused.status, refused.code) == (403, "forbidden")
    assert running.post("/internal/task-complete", body, token=both).status == 200


def test_what_does_not_fit_its_status_is_refused(running: Running) -> None:
    claim = claimed(running, submitted(running))
    for body in ({"status": "failed"}, {"status": "snoozed"}, {"status": "expired"}, {"status": "recorded"}, {}):
        answer = running.post("/internal/task-complete", {**lease(claim), **body})
        assert (answer.status, answer.code) == (422, "invalid_task"), body
    assert running.get(f"/v1/tasks/{claim['task_id']}").json["status"] == "running"


def test_unknown_fields_are_refused_and_named(running: Running) -> None:
    answer = running.post("/v1/tasks", {"tasks": [{"name": "send", "payload": 1, "max_attemps": 3}]})
    assert (answer.status, answer.code) == (422, "invalid_task")
    assert "max_attemps" in answer.json["detail"]
