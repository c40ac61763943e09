"""Answers of several items: the value of each, or why it was refused. What they hold is written by both_ways.py."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.dispatcher import wire, wire_flows, wire_work
from holdfast.dispatcher.both_ways import claim_out, schedule_out
from holdfast.dispatcher.problems import refused
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claimed, Extended
from holdfast.model.schedule import Schedule
from holdfast.model.transition import Amended, Settled


def claimed(given: Claimed) -> wire_work.ClaimAnswer:
    claims = [claim_out(one) for one in given.claims]
    return wire_work.ClaimAnswer(claims=claims, next_due_at=given.next_due_at, more=given.more)


def extended(given: Extended | HoldfastError) -> wire_work.ExtendedItem:
    if isinstance(given, HoldfastError):
        return wire_work.ExtendedItem(error=refused(given))
    return wire_work.ExtendedItem(lease_expires_at=given.expires_at, cancel_requested=given.cancel_requested)


def settled(given: Settled | HoldfastError) -> wire_work.SettledItem:
    if isinstance(given, HoldfastError):
        return wire_work.SettledItem(error=refused(given))
    return wire_work.SettledItem(task_id=given.task_id, attempt=given.attempt, status=given.status)


def amended(given: Amended | HoldfastError) -> wire.AmendedItem:
    if isinstance(given, HoldfastError):
        return wire.AmendedItem(error=refused(given))
    return wire.AmendedItem(task_id=given.task_id, status=given.status, changed=given.changed)


def schedules(given: Sequence[Schedule]) -> wire_flows.SchedulesAnswer:
    return wire_flows.SchedulesAnswer(schedules=[schedule_out(one) for one in given])
