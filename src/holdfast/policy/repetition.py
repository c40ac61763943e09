"""Which tasks of a submit are new, and what the others are answered with (contract C4.2).

A known id is a repeated submit: the same answer again, or a refusal if its content differs. A known idempotency key is
the existing task's, unless that has another name. Within one batch the first of its kind counts as known. Where a key
of a workflow's first task is known, so is the workflow: nothing of it is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.model.task import NewTask, Submitted
from holdfast.policy import refusals, workflow

Lookup = Callable[[str], NewTask | None]
"""A stored task as it was submitted, by id or by key."""


def admitted(tasks: Sequence[NewTask], *, by_id: Lookup, by_key: Lookup) -> tuple[list[Submitted], list[NewTask]]:
    """The answers and the tasks to be stored; a refusal of one is raised and refuses all."""
    workflow.check(tasks)
    depended_on = workflow.dependents(tasks)
    new_ids: dict[str, NewTask] = {}
    new_keys: dict[str, NewTask] = {}
    known_runs: set[str | None] = set()
    answers = []
    for new in tasks:
        if new.run_id in known_runs:
            answers.append(Submitted(new.id, created=False))
            continue
        known = by_id(new.id) or new_ids.get(new.id)
        if known is not None:
            if known.content != new.content:
                raise refusals.other_content(new.id)
            answers.append(Submitted(new.id, created=True))
            continue
        key = new.idempotency_key
        if key is not None:
            holder = by_key(key) or new_keys.get(key)
            if holder is not None:
                if holder.name != new.name:
                    raise refusals.key_conflict(key, holder.id, holder.name, new.name)
                answers.append(Submitted(holder.id, created=False))
                if new.id in depended_on:
                    known_runs.add(new.run_id)
                continue
            new_keys[key] = new
        new_ids[new.id] = new
        answers.append(Submitted(new.id, created=True))
    return answers, list(new_ids.values())
