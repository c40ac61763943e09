"""The list of cases: what each proves, and what a store must be able to do for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from holdfast.testing.conformance.subject import Subject

Proof = Callable[[Subject], Awaitable[None]]


class Case(msgspec.Struct, frozen=True):
    """A promise by name, the clauses of the contract that it proves, and the proof."""

    name: str
    clauses: tuple[str, ...]
    needs: tuple[str, ...]
    """Fields of Capabilities, or abilities of the subject (`outage`, `vanish`); without them the case is skipped."""
    prove: Proof


_cases: dict[str, Case] = {}


def register(name: str, clauses: tuple[str, ...], prove: Proof, needs: tuple[str, ...] = ()) -> None:
    if name in _cases:
        raise ValueError(f"two cases are called {name!r}; name each by the promise that only it proves")
    _cases[name] = Case(name, clauses, needs, prove)


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    """Registers a function under its own name."""

    def registered(prove: Proof) -> Proof:
        register(prove.__name__, clauses, prove, needs)
        return prove

    return registered


def registered_cases() -> tuple[Case, ...]:
    return tuple(_cases.values())
