"""Which clauses of the contract the suite proves, and where the others are proved."""

from __future__ import annotations

from holdfast.testing.conformance.registry import registered_cases

ELSEWHERE = {
    "C0.2": "tests/runtime: that a worker runs nothing that it has not claimed",
    "C4.1": "tests/acceptance: that an acknowledged task outlives a killed process",
    "C4.4": "tests/joined: the connections of every library, rivals, plain SQL",
    "C6.1": "tests/runtime: heartbeats at a third of the lease",
    "C6.4": "tests/runtime: a lost lease cancels the handler, which settles nothing",
    "C6.6": "tests/runtime: heartbeats beside a blocked event loop, stuck slots",
    "C6.7": "tests/acceptance: the work of a killed worker runs again within seconds",
    "C7.4": "tests/runtime: a name that the worker does not know is snoozed",
    "C7.6": "tests/joined: handlers of a real worker, paused and killed",
    "C7.7": "tests/runtime: the handler's context is canceled; a result that is not JSON",
    "C13.1": "tests/acceptance: a paused worker commits nothing, an append repeated after kill -9 adds nothing",
}
"""Clauses, or parts of them, that no store can show by itself."""


def clauses() -> set[str]:
    """Those with a case of their own."""
    return {clause for case in registered_cases() for clause in case.clauses}
