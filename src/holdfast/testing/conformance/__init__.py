"""The contract as a suite that any store can be put through. It needs no test framework.

    def make_subject() -> Subject:
        clock = VirtualClock()
        return Subject(store_factory("mystore://fresh", clock=clock), clock)

    report = run(make_subject)
    assert not report.failures

Under pytest, parametrise over ALL_CASES and call `run_case(case, make_subject)` for each: it raises if the promise is
broken, and answers with the name of the capability if the store lacks one that the case needs.
"""

from holdfast.testing.conformance import (  # noqa: F401  importing them registers their cases
    claim,
    errors,
    events,
    joined,
    lease,
    lifecycle,
    limits,
    operators,
    outbox_failures,
    outbox_relays,
    outbox_rows,
    outbox_sinks,
    output_commits,
    output_pins,
    output_retention,
    output_versions,
    payloads,
    promise,
    queues,
    reads,
    schedules,
    settle,
    states,
    steps,
    submit,
    tokens,
    wakes,
    workers,
    workflow_crowds,
    workflow_failures,
    workflow_rearming,
    workflow_runs,
    workflow_waiting,
)
from holdfast.testing.conformance.coverage import ELSEWHERE, clauses
from holdfast.testing.conformance.registry import Case, registered_cases
from holdfast.testing.conformance.runner import Report, run, run_case
from holdfast.testing.conformance.subject import Subject

ALL_CASES = registered_cases()

__all__ = ["ALL_CASES", "ELSEWHERE", "Case", "Report", "Subject", "clauses", "run", "run_case"]
