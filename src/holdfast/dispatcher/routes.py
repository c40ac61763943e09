"""The one table of routes: what can be called, by whom, with what, and what comes back.

The router, the check of tokens, the OpenAPI document, docs/reference/http.md and the tests that walk all routes are
made from it. Names of queues, runs, schedules, datasets are free text, so they are never part of a path.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from holdfast.dispatcher import (
    on_data,
    on_flows,
    on_service,
    on_tasks,
    on_work,
    queries,
    wire,
    wire_data,
    wire_flows,
    wire_work,
)
from holdfast.dispatcher.hall import Asked, Hall
from holdfast.model.limits import Limits
from holdfast.model.output import DatasetVersion
from holdfast.model.task import Task
from holdfast.model.token import Scope
from holdfast.model.workflow import RunInfo

ENQUEUE, WORK, READ, ADMIN = Scope.ENQUEUE, Scope.WORK, Scope.READ, Scope.ADMIN
ANY = tuple(Scope)


Handler = Callable[[Hall, Asked], Awaitable[Any]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    does: Handler
    method: str
    path: str
    scopes: tuple[Scope, ...]
    """Any of these will do. None: open to everybody."""
    about: str
    query: type[msgspec.Struct] = queries.Query
    body: type[msgspec.Struct] | None = None
    answer: Any
    """None: what it answers is no JSON."""

    @property
    def name(self) -> str:
        return self.does.__name__


def _get(
    does: Handler,
    path: str,
    scopes: tuple[Scope, ...],
    answer: Any,
    about: str,
    *,
    query: type[msgspec.Struct] = queries.Query,
) -> Route:
    return Route(does=does, method="GET", path=path, scopes=scopes, about=about, query=query, answer=answer)


def _post(does: Handler, path: str, scopes: tuple[Scope, ...], body: Any, answer: Any, about: str) -> Route:
    return Route(does=does, method="POST", path=path, scopes=scopes, about=about, body=body, answer=answer)


TABLE: tuple[Route, ...] = (
    # The three calls of the source document (C14.1)
    _post(
        on_work.task_claim,
        "/internal/task-claim",
        (WORK,),
        wire_work.TaskClaimCall,
        wire_work.ClaimOut,
        "Claim one task by its id.",
    ),
    _post(
        on_work.heartbeat,
        "/internal/heartbeat",
        (WORK,),
        wire_work.LeaseIn,
        wire_work.ExtendedOut,
        "Prolong one lease.",
    ),
    _post(
        on_work.task_complete,
        "/internal/task-complete",
        (WORK,),
        wire_work.SettlementIn,
        wire_work.SettledOut,
        "Say how one attempt ended. Follow-ups need the scope enqueue as well.",
    ),
    # Submit and read tasks
    _post(on_tasks.submit, "/v1/tasks", (ENQUEUE,), wire.SubmitCall, wire.SubmitAnswer, "Submit tasks, all or none."),
    _get(on_tasks.tasks, "/v1/tasks", (READ,), wire.TasksAnswer, "Tasks, newest first.", query=queries.TasksQuery),
    _get(
        on_tasks.task_by_key,
        "/v1/tasks/by-key",
        (READ,),
        Task,
        "One task, by its idempotency key.",
        query=queries.KeyQuery,
    ),
    _post(
        on_tasks.ended,
        "/v1/tasks/ended",
        (READ,),
        wire.EndedCall,
        wire.EndedAnswer,
        "Of these tasks those that have ended; null for one that does not exist.",
    ),
    _post(
        on_tasks.amend,
        "/v1/tasks/amend",
        (ADMIN,),
        wire.AmendCall,
        wire.AmendAnswer,
        "Cancel, requeue, release by force or delete many.",
    ),
    _get(on_tasks.task, "/v1/tasks/{task_id}", (READ, WORK), Task, "One task."),
    Route(
        does=on_tasks.delete,
        method="DELETE",
        path="/v1/tasks/{task_id}",
        scopes=(ADMIN,),
        about="Delete an ended task.",
        answer=wire.AmendedOut,
    ),
    _post(
        on_tasks.cancel,
        "/v1/tasks/{task_id}/cancel",
        (ADMIN,),
        None,
        wire.AmendedOut,
        "Cancel a task; a running one is asked.",
    ),
    _post(
        on_tasks.requeue,
        "/v1/tasks/{task_id}/requeue",
        (ADMIN,),
        None,
        wire.AmendedOut,
        "Queue a failed or canceled task again, with a fresh budget.",
    ),
    _post(
        on_tasks.release,
        "/v1/tasks/{task_id}/release",
        (ADMIN,),
        None,
        wire.AmendedOut,
        "End the lease of a running task by force.",
    ),
    _get(
        on_tasks.task_events,
        "/v1/tasks/{task_id}/events",
        (READ,),
        wire.EventsAnswer,
        "The events of one task, as a page or a stream; with `after=now`, those to come.",
        query=queries.EventsQuery,
    ),
    _get(
        on_tasks.parents,
        "/v1/tasks/{task_id}/parents",
        (READ, WORK),
        wire.ParentsAnswer,
        "How the parents of a task ended, in order.",
        query=queries.OffsetQuery,
    ),
    _get(
        on_tasks.steps,
        "/v1/tasks/{task_id}/steps",
        (READ, WORK),
        wire_work.StepsAnswer,
        "The recorded steps of a task.",
    ),
    _get(
        on_tasks.inputs,
        "/v1/tasks/{task_id}/inputs",
        (READ, WORK),
        wire.PinnedAnswer,
        "The versions of datasets that a task reads; null where no parent has written one.",
    ),
    # Work
    _post(
        on_work.claim,
        "/v1/claims",
        (WORK,),
        wire_work.ClaimCall,
        wire_work.ClaimAnswer,
        "Claim up to `limit` tasks; with `wait_seconds`, wait for the first.",
    ),
    _get(
        on_work.wakeups,
        "/v1/wakeups",
        (WORK, READ),
        wire_work.WakeupsAnswer,
        "Answers when there may be something new, or after `wait` seconds.",
        query=queries.WakeupsQuery,
    ),
    _post(
        on_work.extend,
        "/v1/leases/extend",
        (WORK,),
        wire_work.ExtendCall,
        wire_work.ExtendAnswer,
        "Prolong leases: a heartbeat for many.",
    ),
    _post(
        on_work.settle,
        "/v1/settlements",
        (WORK,),
        wire_work.SettleCall,
        wire_work.SettleAnswer,
        "Say how attempts ended. Follow-ups need the scope enqueue as well.",
    ),
    _post(
        on_work.report,
        "/v1/reports",
        (WORK,),
        wire_work.ReportCall,
        wire.Done,
        "Record an event of a running attempt at once. Progress is `task.progress` with `done`, `total?`, `message?`.",
    ),
    _post(
        on_work.record_step,
        "/v1/steps",
        (WORK,),
        wire_work.StepCall,
        wire_work.StepOut,
        "Record what a step gave; the recorded one, if there is one already.",
    ),
    _get(on_work.workers, "/v1/workers", (READ,), wire_work.WorkersAnswer, "Who is working."),
    _post(
        on_work.enroll,
        "/v1/workers",
        (WORK,),
        wire_work.EnrollCall,
        wire.Done,
        "Make a worker known, or renew its entry.",
    ),
    _post(
        on_work.leave,
        "/v1/workers/leave",
        (WORK,),
        wire_work.LeaveCall,
        wire.Done,
        "Forget a worker; the leases that it shows are ended.",
    ),
    # Events
    _get(
        on_tasks.events,
        "/v1/events",
        (READ,),
        wire.EventsAnswer,
        "The events of all tasks, as a page or a stream; with `after=now`, those to come.",
        query=queries.EventsQuery,
    ),
    # Queues and runs
    _get(on_flows.queues, "/v1/queues", (READ,), wire_flows.QueuesAnswer, "Queues, with their counts and limits."),
    _post(
        on_flows.pause_queue,
        "/v1/queues/pause",
        (ADMIN,),
        wire_flows.PauseQueueCall,
        wire.Done,
        "Pause or resume a queue.",
    ),
    _post(
        on_flows.limit,
        "/v1/queues/limit",
        (ADMIN,),
        wire_flows.LimitCall,
        Limits,
        "Change limits of a queue, or of the whole store (`*`).",
    ),
    _get(on_flows.runs, "/v1/runs", (READ,), wire_flows.RunsAnswer, "Runs, newest first.", query=queries.RunsQuery),
    _get(on_flows.run, "/v1/runs/one", (READ,), RunInfo, "One run.", query=queries.RunQuery),
    _get(
        on_flows.run_lives,
        "/v1/runs/lives",
        (READ,),
        wire_flows.RunLivesAnswer,
        "Can anything of it still run?",
        query=queries.RunQuery,
    ),
    _post(
        on_flows.cancel_run,
        "/v1/runs/cancel",
        (ADMIN,),
        wire_flows.RunCall,
        wire.CountAnswer,
        "Cancel every task of a run that has not ended; how many.",
    ),
    _post(
        on_flows.advance,
        "/v1/advance",
        (WORK,),
        wire_flows.AdvanceCall,
        wire.CountAnswer,
        "Go on with what settlements have left of large workflows; how many tasks. It happens by itself as well.",
    ),
    # Schedules
    _get(on_flows.schedules, "/v1/schedules", (READ, WORK), wire_flows.SchedulesAnswer, "Schedules, by name."),
    _post(
        on_flows.declare_schedule,
        "/v1/schedules",
        (ADMIN, WORK),
        wire_flows.DeclareScheduleCall,
        wire_flows.ScheduleOut,
        "Make a schedule known, or renew it. A worker needs the scope enqueue as well.",
    ),
    _post(
        on_flows.fire,
        "/v1/schedules/fire",
        (ADMIN,),
        wire_flows.FireCall,
        wire_flows.FiredAnswer,
        "Submit the tasks of a firing, if nobody else was first.",
    ),
    _post(
        on_flows.pause_schedule,
        "/v1/schedules/pause",
        (ADMIN,),
        wire_flows.PauseScheduleCall,
        wire.Done,
        "Pause or resume a schedule.",
    ),
    _post(
        on_flows.delete_schedule,
        "/v1/schedules/delete",
        (ADMIN,),
        wire.NameCall,
        wire.Done,
        "Delete a schedule; its tasks stay.",
    ),
    # Datasets
    _get(
        on_data.datasets,
        "/v1/datasets",
        (READ,),
        wire_data.DatasetsAnswer,
        "Datasets, by name.",
        query=queries.DatasetsQuery,
    ),
    _get(
        on_data.dataset_versions,
        "/v1/datasets/versions",
        (READ,),
        wire_data.VersionsAnswer,
        "Versions of a dataset, newest first.",
        query=queries.VersionsQuery,
    ),
    _get(
        on_data.dataset_version,
        "/v1/datasets/version",
        (READ, WORK),
        DatasetVersion,
        "One version of a dataset, or the latest.",
        query=queries.VersionQuery,
    ),
    _get(
        on_data.dataset_rows,
        "/v1/datasets/rows",
        (READ, WORK),
        wire_data.RowsAnswer,
        "Rows of a version, by key.",
        query=queries.RowsQuery,
    ),
    # Sinks and the outbox
    _get(
        on_data.sinks, "/v1/sinks", (ADMIN,), wire_data.SinksAnswer, "Who is told of changes, and what waits for them."
    ),
    _post(
        on_data.declare_sink, "/v1/sinks", (ADMIN,), wire_data.SinkCall, wire.Done, "Make a sink known, or renew it."
    ),
    _post(
        on_data.delete_sink,
        "/v1/sinks/delete",
        (ADMIN,),
        wire.NameCall,
        wire.DeletedAnswer,
        "Forget a sink and all that waits for it.",
    ),
    _get(
        on_data.outbox,
        "/v1/outbox",
        (ADMIN,),
        wire_data.OutboxAnswer,
        "What sinks are yet to be told, and what was given up.",
        query=queries.OutboxQuery,
    ),
    _post(
        on_data.requeue_outbox,
        "/v1/outbox/requeue",
        (ADMIN,),
        wire_data.RowsCall,
        wire.CountAnswer,
        "Dead rows are pending again; how many.",
    ),
    _post(
        on_data.purge_outbox,
        "/v1/outbox/purge",
        (ADMIN,),
        wire_data.RowsCall,
        wire.CountAnswer,
        "Forget dead rows; how many.",
    ),
    # The store
    _get(on_service.store, "/v1/store", ANY, wire.StoreAnswer, "Which store this is, and what it can do."),
    _get(on_service.now, "/v1/now", ANY, wire.NowAnswer, "The store's clock, which decides everything about time."),
    _get(on_service.check, "/v1/check", (READ, ADMIN), wire.CheckAnswer, "What `holdfast doctor` asks the store."),
    # The service
    _get(on_service.livez, "/livez", (), wire.Done, "The process is there."),
    _get(
        on_service.readyz,
        "/readyz",
        (),
        wire.Done,
        "It can be called: the store answers, and nobody has asked it to stop.",
    ),
    _get(on_service.measures, "/metrics", (READ,), None, "Figures, in the text format of Prometheus."),
    _get(on_service.openapi, "/openapi.json", ANY, None, "This table, as an OpenAPI document."),
)
