"""Runs the suite without a test framework, for stores that live elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from holdfast.testing.conformance.registry import Case, registered_cases
from holdfast.testing.conformance.subject import Subject


class Report(msgspec.Struct, frozen=True):
    passed: list[str]
    skipped: dict[str, str]
    """By name of the case: the capability that the store lacks."""
    failures: dict[str, Exception]
    """By name of the case: what broke it."""


def run(make_subject: Callable[[], Subject], cases: Sequence[Case] | None = None) -> Report:
    """Every case, each on a subject of its own."""
    report = Report([], {}, {})
    for case in registered_cases() if cases is None else cases:
        try:
            lacking = run_case(case, make_subject)
        except Exception as broken:
            report.failures[case.name] = broken
        else:
            if lacking is None:
                report.passed.append(case.name)
            else:
                report.skipped[case.name] = lacking
    return report


def run_case(case: Case, make_subject: Callable[[], Subject]) -> str | None:
    """Raises if the promise is broken; the name of the missing capability if it was not asked for."""
    return asyncio.run(_run_case(case, make_subject))


async def _run_case(case: Case, make_subject: Callable[[], Subject]) -> str | None:
    async with make_subject() as subject:
        lacking = subject.lacks(case.needs)
        if lacking is None:
            await case.prove(subject)
        return lacking
