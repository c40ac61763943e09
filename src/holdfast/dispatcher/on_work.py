"""Calls of workers: claim, keep, report, settle; one at a time as the source document has them, and many at once."""

from __future__ import annotations

from holdfast.dispatcher import admission, answers, both_ways, wire, wire_work
from holdfast.dispatcher.guard import check_scope
from holdfast.dispatcher.hall import Asked, Hall
from holdfast.errors import HoldfastError, InvalidTask
from holdfast.model.outcome import Settlement
from holdfast.model.token import Scope
from holdfast.model.transition import Settled


async def task_claim(hall: Hall, asked: Asked) -> wire_work.ClaimOut:
    given: wire_work.TaskClaimCall = asked.body
    request = admission.claim_request(
        wire_work.ClaimCall(
            worker_id=given.worker_id,
            claim_id=given.claim_id,
            lease_seconds=given.lease_seconds,
            task_id=given.task_id,
        )
    )
    for claim in (await hall.store.claim(request)).claims:
        if claim.task_id == given.task_id:
            return both_ways.claim_out(claim)
    raise InvalidTask(f"claim_id {request.claim_id} was used for other tasks; make a new one for every claim")


async def claim(hall: Hall, asked: Asked) -> wire_work.ClaimAnswer:
    given: wire_work.ClaimCall = asked.body
    request = admission.claim_request(given)
    if given.wait_seconds and given.task_id is None:
        return answers.claimed(await hall.lines.claim(request, given.wait_seconds, asked.gone))
    return answers.claimed(await hall.store.claim(request))


async def wakeups(hall: Hall, asked: Asked) -> wire_work.WakeupsAnswer:
    hints = hall.work if asked.query.kind == "work" else hall.ends
    with hints.listened_to():
        number = hints.number_of(asked.query.seen)
        woken = await hints.after(number, asked.query.wait, or_when=(asked.gone, hall.closing))
    return wire_work.WakeupsAnswer(woken=woken, seen=hints.seen)


async def heartbeat(hall: Hall, asked: Asked) -> wire_work.ExtendedOut:
    (answer,) = await hall.store.extend([admission.lease(asked.body)])
    if isinstance(answer, HoldfastError):
        raise answer
    return wire_work.ExtendedOut(lease_expires_at=answer.expires_at, cancel_requested=answer.cancel_requested)


async def extend(hall: Hall, asked: Asked) -> wire_work.ExtendAnswer:
    given: wire_work.ExtendCall = asked.body
    leases = [admission.lease(lease) for lease in given.leases]
    done = await hall.store.extend(leases) if leases else []
    return wire_work.ExtendAnswer(leases=[answers.extended(one) for one in done])


async def task_complete(hall: Hall, asked: Asked) -> Settled:
    given: wire_work.SettlementIn = asked.body
    if given.follow_ups:
        check_scope(asked.caller, Scope.ENQUEUE)
    (answer,) = await hall.store.settle([admission.settlement(given, hall.terms)])
    if isinstance(answer, HoldfastError):
        raise answer
    return answer


async def settle(hall: Hall, asked: Asked) -> wire_work.SettleAnswer:
    """One that is not admitted is refused alone, as one whose lease is lost."""
    given: wire_work.SettleCall = asked.body
    if any(one.follow_ups for one in given.settlements):
        check_scope(asked.caller, Scope.ENQUEUE)
    admitted = [_admitted(hall, one) for one in given.settlements]
    good = [one for one in admitted if isinstance(one, Settlement)]
    done = iter(await hall.store.settle(good) if good else [])
    said = [next(done) if isinstance(one, Settlement) else one for one in admitted]
    return wire_work.SettleAnswer(settlements=[answers.settled(one) for one in said])


def _admitted(hall: Hall, given: wire_work.SettlementIn) -> Settlement | InvalidTask:
    try:
        return admission.settlement(given, hall.terms)
    except InvalidTask as refused:
        return refused


async def report(hall: Hall, asked: Asked) -> wire.Done:
    kind, data = admission.report(asked.body)
    await hall.store.report(admission.lease(asked.body), kind, data)
    return wire.Done()


async def record_step(hall: Hall, asked: Asked) -> wire_work.StepOut:
    name, result = admission.step(asked.body)
    return both_ways.step_out(await hall.store.record_step(admission.lease(asked.body), name, result))


async def enroll(hall: Hall, asked: Asked) -> wire.Done:
    await hall.store.enroll(admission.worker(asked.body))
    return wire.Done()


async def leave(hall: Hall, asked: Asked) -> wire.Done:
    """Ends what the caller shows the leases of: whoever knows a worker's name could say it."""
    given: wire_work.LeaveCall = asked.body
    await hall.store.leave(given.worker_id, [admission.lease(lease) for lease in given.leases])
    return wire.Done()


async def workers(hall: Hall, asked: Asked) -> wire_work.WorkersAnswer:  # noqa: ARG001
    return wire_work.WorkersAnswer(workers=await hall.store.workers())
